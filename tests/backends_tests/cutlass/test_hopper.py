"""Hopper's kernels under a model of its copies, barriers and products on the CPU, and what is
compiled of them."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - bfloat16 by its name
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.gpu.cases.compiling import ARCH
from collage.backends.contract import BuildContext
from collage.backends.cutlass.families.gemm.configurations import GemmConfiguration
from collage.backends.cutlass.families.gemm.family import family, spec_of
from collage.backends.cutlass.families.gemm.patterns import Form
from collage.backends.cutlass.families.gemm.problem import Operand, plan
from collage.backends.cutlass.families.gemm.render import ACTIVATION_CODES, RESIDUAL_CODES
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.cutlass.unit import Unit
from collage.config import Config
from tests.backends_tests.cutlass.hopper_library import (
    Array,
    compile_for_host,
    drawn,
    integers,
    pointers,
)

pytestmark = [pytest.mark.cuda, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compile_for_host("cutlass_hopper.cc", tmp_path_factory.mktemp("hopper"))


def finished(sums: Array, bias: Array | None, other: Array | None, residual: str) -> Array:
    """GELU after the bias, then the residual."""
    if bias is not None:
        shifted = sums + bias
        sums = 0.5 * shifted * (1 + np.vectorize(math.erf)(shifted / math.sqrt(2)))
    if other is not None:
        sums = sums + other if residual == "add" else sums * other
    return sums


@pytest.mark.parametrize(
    "tile", [(64, 64, 128), (64, 128, 64), (128, 64, 64), (192, 128, 64), (128, 256, 64)]
)
@pytest.mark.parametrize("layout", ["rc", "rr", "cr", "cc"])
def test_products_of_every_layout_and_tile(
    library: ctypes.CDLL, tile: tuple[int, int, int], layout: str
) -> None:
    """Rows, columns and steps beyond the tiles' edges, batches, odd rows, what follows."""
    cases = [(200, 264, 72, 3, ""), (72, 136, 264, 1, "add"), (328, 72, 200, 2, "multiply")]
    if layout == "rc":  # The right operand's columns may be any number there.
        cases += [(70, 203, 136, 1, ""), (131, 301, 64, 1, "add"), (1, 1, 8, 1, "multiply")]
    for m, n, k, batch, residual in cases:
        rng = np.random.default_rng(m + n)
        a, b = drawn(rng, batch, m, k), drawn(rng, batch, k, n)
        bias = drawn(rng, n) if residual != "multiply" else None
        other = drawn(rng, batch, m, n) if residual else None
        stored = [
            np.ascontiguousarray(a if layout[0] == "r" else a.transpose(0, 2, 1)),
            np.ascontiguousarray(b if layout[1] == "r" else b.transpose(0, 2, 1)),
        ]
        leading = [stored[0].shape[-1], stored[1].shape[-1]]
        strides = [m * k, k * n] if batch > 1 else [0, 0]
        gelu = ACTIVATION_CODES["gelu"] if bias is not None else 0
        chain = [int(bias is not None), gelu, RESIDUAL_CODES[residual], 0, 1]
        # Elements behind the result must stay as they are.
        output = np.full(batch * m * n + 64, 77, np.float16)
        failed = library.run_product(
            *(*tile, layout[0] == "r", layout[1] == "c", other is not None),
            integers([m, n, k, batch, *leading, *strides, *chain]),
            pointers([*stored, *(x for x in (bias, other) if x is not None)]),
            ctypes.c_void_p(output.ctypes.data),
        )
        assert failed == 0
        assert (output[batch * m * n :] == 77).all()
        expected = finished(a.astype(np.float64) @ b.astype(np.float64), bias, other, residual)
        made = output[: batch * m * n].reshape(batch, m, n)
        np.testing.assert_allclose(made, expected, rtol=2e-3, atol=2e-3)


def test_products_in_bfloat16(library: ctypes.CDLL) -> None:
    m, n, k = 131, 200, 136
    rng = np.random.default_rng(5)
    bfloat16 = np.dtype("bfloat16")
    a, b, other = (drawn(rng, *s).astype(bfloat16) for s in ((m, k), (n, k), (m, n)))
    output = np.full(m * n + 64, 77, bfloat16)
    sizes = [m, n, k, 1, k, k, 0, 0, 0, 0, RESIDUAL_CODES["add"], 0, 1]
    failed = library.run_bfloat16(
        integers(sizes), pointers([a, b, other]), ctypes.c_void_p(output.ctypes.data)
    )
    assert failed == 0
    assert (output[m * n :] == 77).all()
    wanted = a.astype(np.float64) @ b.astype(np.float64).T + other.astype(np.float64)
    made = output[: m * n].reshape(m, n).astype(np.float64)
    np.testing.assert_allclose(made, wanted, rtol=2**-8, atol=2e-3)


def convolved(data: Array, weights: Array, stride: Array, pads: Array, dilation: Array) -> Array:
    """NHWC by OHWI, in float64."""
    (top, left, below, right), (k, r, s, _) = pads, weights.shape
    x = np.pad(data.astype(np.float64), ((0, 0), (top, below), (left, right), (0, 0)))
    p = (x.shape[1] - (r - 1) * dilation[0] - 1) // stride[0] + 1
    q = (x.shape[2] - (s - 1) * dilation[1] - 1) // stride[1] + 1
    sums = np.zeros((len(data), p, q, k))
    for i in range(r):
        for j in range(s):
            y, z = i * dilation[0], j * dilation[1]
            part = x[:, y : y + (p - 1) * stride[0] + 1 : stride[0]]
            part = part[:, :, z : z + (q - 1) * stride[1] + 1 : stride[1]]
            sums += part @ weights[:, i, j].T.astype(np.float64)
    return sums


@pytest.mark.parametrize("tile", [(64, 64), (128, 192)])
@pytest.mark.parametrize(
    ("shape", "filters", "stride", "pads", "dilation"),
    [
        ((3, 9, 11, 72), (40, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
        ((2, 13, 10, 64), (200, 5, 3), (2, 1), (2, 0, 1, 1), (1, 2)),
        ((5, 7, 6, 136), (24, 1, 1), (2, 2), (0, 0, 0, 0), (1, 1)),
        ((1, 12, 12, 8), (8, 3, 4), (3, 2), (0, 3, 2, 1), (2, 1)),
    ],
)
def test_convolutions_gather_the_pixels_that_each_place_of_the_filter_sees(
    library: ctypes.CDLL,
    tile: tuple[int, int],
    shape: tuple[int, ...],
    filters: tuple[int, ...],
    stride: Any,
    pads: Any,
    dilation: Any,
) -> None:
    rng = np.random.default_rng(shape[1])
    data, weights = drawn(rng, *shape), drawn(rng, *filters, shape[3])
    sums = convolved(data, weights, stride, pads, dilation)
    bias, other = drawn(rng, filters[0]), drawn(rng, *sums.shape)
    sizes = [*shape, *filters, *sums.shape[1:3], *pads, *stride, *dilation]
    for residual in ("", "add"):
        chain = [1, ACTIVATION_CODES["gelu"], RESIDUAL_CODES[residual], 0, 1]
        output = np.full(sums.size + 64, 77, np.float16)
        failed = library.run_convolution(
            *(*tile, bool(residual), integers([*sizes, *chain])),
            pointers([data, weights, bias, *([other] if residual else [])]),
            ctypes.c_void_p(output.ctypes.data),
        )
        assert failed == 0
        assert (output[sums.size :] == 77).all()
        expected = finished(sums, bias, other if residual else None, residual)
        made = output[: sums.size].reshape(sums.shape)
        np.testing.assert_allclose(made, expected, rtol=2e-3, atol=4e-3)


@given(
    blocks=st.integers(1, 7),
    rows=st.integers(1, 70),
    columns=st.integers(1, 9),
    batch=st.integers(1, 4),
)
@settings(deadline=None, max_examples=60)
def test_every_tile_is_computed_once(
    library: ctypes.CDLL, blocks: int, rows: int, columns: int, batch: int
) -> None:
    made = np.zeros((rows * columns * batch, 4), np.int32)
    assert library.corners(blocks, rows, columns, batch, made.ctypes.data_as(ctypes.c_void_p)) == (
        len(made)
    )
    wanted = {(i, j, k) for i in range(rows) for j in range(columns) for k in range(batch)}
    assert {tuple(row) for row in made[:, 1:].tolist()} == wanted
    # Blocks have equally many, or one less.
    counts = np.bincount(made[:, 0], minlength=blocks)
    assert counts.max() - counts.min() <= 1


@given(by=st.integers(1, 2**31 - 1), number=st.integers(0, 2**31 - 1))
@settings(deadline=None, max_examples=500)
def test_divisors_divide(library: ctypes.CDLL, by: int, number: int) -> None:
    for dividend in {number, by - 1, by, min(2 * by - 1, 2**31 - 1), number // by * by}:
        quotient, rest = ctypes.c_int(), ctypes.c_int()
        library.divide(by, dividend, ctypes.byref(quotient), ctypes.byref(rest))
        assert (quotient.value, rest.value) == divmod(dividend, by)


@pytest.mark.parametrize(("words", "dtype"), [(50257, "float16"), (50264, "bfloat16")])
def test_weights_are_loaded_in_bulk_whatever_the_rows_of_the_result(
    words: int, dtype: str, tmp_path: Path
) -> None:
    problem = plan(Operand((128, 768)), Operand((words, 768), True), (128, words), dtype)
    spec = spec_of(problem, Form(), CutlassOptions())
    best = family().configurations(spec, CutlassOptions(), ARCH)[0]
    assert isinstance(best, GemmConfiguration)
    assert best.kind == "sm90" and best.is_quick
    unit = Unit.of(family().render(spec, best))
    # None of CUTLASS's templates, which take minutes.
    assert "cutlass/" not in unit.text and "cute/" not in unit.text
    context = BuildContext(Config.from_environment().cache_dir, tmp_path)
    assert b"run_tiles" in unit.compile(tmp_path, CutlassOptions(), context, ARCH).read_bytes()
