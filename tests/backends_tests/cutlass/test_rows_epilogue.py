"""Hopper kernels whose result TMA cannot store: their epilogue on the CPU, and what is compiled."""

from __future__ import annotations

import ctypes
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.gpu.cases.compiling import ARCH
from collage.backends.contract import BuildContext
from collage.backends.cutlass.families.gemm.configurations import SM90_TILES, GemmConfiguration
from collage.backends.cutlass.families.gemm.family import family, spec_of
from collage.backends.cutlass.families.gemm.patterns import Form
from collage.backends.cutlass.families.gemm.problem import Operand, plan
from collage.backends.cutlass.families.gemm.render import ACTIVATION_CODES, RESIDUAL_CODES
from collage.backends.cutlass.library import TEMPLATES, include_flags
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.cutlass.unit import Unit
from collage.backends.toolchain.cuda_toolkit import find_toolkit
from collage.config import Config

pytestmark = [pytest.mark.cuda, pytest.mark.timeout(900)]

SOURCE = Path(__file__).with_name("cutlass_rows_epilogue.cc")
Array = NDArray[np.float64]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    output = tmp_path_factory.mktemp("epilogue") / "epilogue.so"
    toolkit = find_toolkit().include
    stand_ins = SOURCE.parents[1]  # cuda_on_host.h
    folders = (stand_ins, TEMPLATES, toolkit, toolkit / "cccl")
    flags = [*include_flags(), *(f"-I{folder}" for folder in folders)]
    command = ["g++", "-std=c++17", "-O1", "-w", "-shared", "-fPIC", *flags]
    subprocess.run([*command, "-o", str(output), str(SOURCE)], check=True)
    return ctypes.CDLL(str(output))


def pointer(array: np.ndarray | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if array is None else array.ctypes.data)


TILES = sorted({tile.shape[:2] for tile in SM90_TILES})
SIZES = [(1, 1, 1), (130, 257, 1), (70, 303, 2), (300, 97, 1)]


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: "x".join(map(str, tile)))
@pytest.mark.parametrize("residual", ["", "add", "multiply"])
@pytest.mark.parametrize("bias", [False, True])
def test_every_element_is_stored_where_it_belongs(
    library: ctypes.CDLL, tile: tuple[int, int], residual: str, bias: bool
) -> None:
    """Rows and columns beyond the tiles' edges, batches, what follows the product."""
    for rows, columns, batch in SIZES:
        rng = np.random.default_rng(rows + columns)
        sums = rng.standard_normal((batch, rows, columns), dtype=np.float32)
        shift = rng.standard_normal(columns).astype(np.float16) if bias else None
        other = rng.standard_normal(sums.shape).astype(np.float16) if residual else None
        # Elements behind the result must stay as they are.
        output = np.full(sums.size + 64, 77, np.float16)
        activation = ACTIVATION_CODES["gelu" if bias else ""]
        failed = library.run_epilogue(
            *(*tile, rows, columns, batch, pointer(sums), pointer(shift), pointer(other)),
            *(pointer(output), activation, RESIDUAL_CODES[residual]),
        )
        assert failed == 0
        assert (output[sums.size :] == 77).all()
        expected = sums.astype(np.float64)
        if shift is not None:
            x = expected + shift
            expected = 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
        if other is not None:
            expected = expected + other if residual == "add" else expected * other
        made = output[: sums.size].reshape(sums.shape)
        np.testing.assert_allclose(made, expected, rtol=1e-3, atol=1e-3)


def vocabulary(rows: int, words: int = 50257, depth: int = 768, dtype: str = "float16") -> Unit:
    """The unit of the best guess for a language model's last product."""
    problem = plan(Operand((rows, depth)), Operand((words, depth), True), (rows, words), dtype)
    spec = spec_of(problem, Form(), CutlassOptions())
    best = family().configurations(spec, CutlassOptions(), ARCH)[0]
    assert isinstance(best, GemmConfiguration)
    assert (best.kind, best.alignments) == ("sm90", (8, 8, 1))
    return Unit.of(family().render(spec, best))


@pytest.mark.parametrize("rows", [128, 2048])
def test_weights_are_loaded_in_bulk_though_the_rows_of_the_result_are_odd(
    rows: int, tmp_path: Path
) -> None:
    unit = vocabulary(rows)
    assert "EpilogueSchedule = collage::StoreRows" in unit.text
    assert '#include "gemm/rows_sm90.h"' in unit.text
    context = BuildContext(Config.from_environment().cache_dir, tmp_path)
    made = unit.compile(tmp_path, CutlassOptions(), context, ARCH)
    names = made.read_bytes()
    assert b"SM90_TMA_LOAD" in names
    assert b"RowsEpilogueOperator" in names
    # The result is not stored by TMA.
    assert b"SM90_TMA_STORE" not in names


def test_results_with_aligned_rows_are_stored_by_tma_as_before() -> None:
    problem = plan(Operand((128, 768)), Operand((768, 3072)), (128, 3072), "float16")
    spec = spec_of(problem, Form(), CutlassOptions())
    texts = [
        family().render(spec, made).text
        for made in family().configurations(spec, CutlassOptions(), ARCH)
    ]
    assert any("TmaWarpSpecialized" in text for text in texts)
    assert not any("StoreRows" in text for text in texts)
