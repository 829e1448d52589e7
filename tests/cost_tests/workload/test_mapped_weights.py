"""Weights that builders share by mapping them: the same values, whatever becomes of the files."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op
from tvm_ffi import structural_equal

from collage.backends.relax.constant_data import constant_data
from collage.backends.toolchain.children.mapped_pages import forget_pages
from collage.cost.workload.arrays import load_arrays, save_arrays
from collage.cost.workload.shared_weights import (
    MappedWeights,
    module_file,
    read_module,
    weights_folder,
    write_modules,
)
from collage.testing.graphs import Emit, graph

LARGE, SMALL = (256, 300), (3, 5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int8", "bool", "bfloat16"])
def test_arrays_that_are_mapped_are_those_that_were_saved(dtype: str, tmp_path: Path) -> None:
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    rng = np.random.default_rng()
    arrays = [(rng.normal(size=s) * 9).astype(kind) for s in (LARGE, SMALL, (), (0, 4))]
    save_arrays(tmp_path, arrays)
    loaded = load_arrays(tmp_path, mapped=True)
    assert isinstance(loaded[0], np.memmap) and not isinstance(loaded[1], np.memmap)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    for array, expected in zip(loaded, arrays, strict=True):
        assert array.dtype == kind
        np.testing.assert_array_equal(array, expected)
        array[...] = 0
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_module_keeps_its_weights_when_the_files_are_gone(dtype: str, tmp_path: Path) -> None:
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    weights = [np.random.default_rng().normal(size=s).astype(kind) for s in (LARGE, LARGE[1:])]
    product, bias = (relax.const(array, dtype) for array in weights)
    mod = graph([(4, LARGE[0])], lambda emit, x: op.add(emit(op.matmul(x, product)), bias), dtype)
    write_modules([mod], tmp_path)
    read = read_module(module_file(tmp_path, 0), weights_folder(tmp_path))
    shutil.rmtree(weights_folder(tmp_path))
    found: list[np.ndarray] = []
    relax.analysis.post_order_visit(
        read["main"].body,
        lambda e: found.append(constant_data(e)) if type(e) is type(product) else None,
    )
    assert {array.shape for array in found} == {LARGE, LARGE[1:]}
    for array in found:
        np.testing.assert_array_equal(
            array.view(np.uint8), next(w for w in weights if w.shape == array.shape).view(np.uint8)
        )


def _product(*weights: np.ndarray) -> tvm.IRModule:
    constants = [relax.const(array) for array in weights]

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        for constant in constants:
            x = emit(op.matmul(x, constant))
        return x

    return graph([(4, len(weights[0]))], body)


def _values(mod: tvm.IRModule) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    kind = type(relax.const(1.0))
    relax.analysis.post_order_visit(
        mod["main"].body, lambda e: found.append(constant_data(e)) if type(e) is kind else None
    )
    return found


def _own_bytes() -> int:
    """What this process holds that is in no file."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) << 10
    return 0


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells what is held")
def test_a_search_holds_its_weights_once_and_not_while_nobody_reads_them(tmp_path: Path) -> None:
    side = 4096
    weights = [np.random.default_rng().random((side, side), dtype=np.float32) for _ in range(2)]
    before = _own_bytes()
    mod = MappedWeights(tmp_path).of(_product(*weights))
    assert _own_bytes() - before < weights[0].nbytes // 4
    for _ in range(2):
        for found, expected in zip(_values(mod), weights, strict=True):
            np.testing.assert_array_equal(found, expected)
        assert _held_bytes(tmp_path) > weights[0].nbytes
        forget_pages(tmp_path)
        assert _held_bytes(tmp_path) < weights[0].nbytes // 4
    shutil.rmtree(tmp_path / "mapped-1")
    np.testing.assert_array_equal(_values(mod)[1], weights[1])


def _held_bytes(folder: Path) -> int:
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if not line[0].isupper():
            ours = f" {folder.resolve()}{os.sep}" in line
        elif ours and line.startswith("Rss:"):
            total += int(line.split()[1]) << 10
    return total


def test_what_was_written_to_is_not_forgotten(tmp_path: Path) -> None:
    save_arrays(tmp_path, [np.zeros(LARGE, np.float32)])
    (array,) = load_arrays(tmp_path, mapped=True)
    array[1] = 1.0
    forget_pages(tmp_path)
    assert array.sum() == LARGE[1]


def test_weights_that_are_in_files_are_not_written_again(tmp_path: Path) -> None:
    rng = np.random.default_rng()
    weights = MappedWeights(tmp_path, least_bytes=1)
    first, second = (rng.random((256, 256), dtype=np.float32) for _ in range(2))
    mod = weights.of(_product(first, second))
    again = relax.const(rng.random((256, 256), dtype=np.float32))
    main = mod["main"]
    more = graph(
        [(4, 256)], lambda emit, x: op.matmul(emit(op.matmul(x, _constants(mod)[0])), again)
    )
    assert weights.of(mod) is mod and structural_equal(mod["main"], main)
    mixed = weights.of(more)
    assert len(list(tmp_path.glob("mapped-2/*.npy"))) == 1
    for found, expected in zip(_values(mixed), [first, again.value.numpy()], strict=True):
        np.testing.assert_array_equal(found, expected)


def _constants(mod: tvm.IRModule) -> list[relax.Expr]:
    found: list[relax.Expr] = []
    kind = type(relax.const(1.0))
    relax.analysis.post_order_visit(
        mod["main"].body, lambda e: found.append(e) if type(e) is kind else None
    )
    return found


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_types_that_are_copied_anyway_and_small_ones_stay_as_they_are(
    dtype: str, tmp_path: Path
) -> None:
    other = relax.const(np.ones(LARGE, getattr(ml_dtypes, dtype)), dtype)
    mod = graph([(4, 3)], lambda emit, x: relax.Tuple([emit(op.exp(x)), other]))
    assert MappedWeights(tmp_path, least_bytes=1).of(mod) is mod
    few = _product(np.ones((8, 8), np.float32))
    assert MappedWeights(tmp_path, least_bytes=1).of(few) is few
    assert not list(tmp_path.iterdir())


def test_where_no_files_can_be_written_weights_stay_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    mod = _product(np.ones((256, 256), np.float32))
    monkeypatch.setattr(np, "save", full)
    assert MappedWeights(tmp_path, least_bytes=1).of(mod) is mod
