"""Weights that builders share by mapping them: the same values, whatever becomes of the files."""

from __future__ import annotations

import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from collage.backends.relax.constant_data import constant_data
from collage.cost.workload.arrays import load_arrays, save_arrays
from collage.cost.workload.shared_weights import (
    module_file,
    read_module,
    weights_folder,
    write_modules,
)
from collage.testing.graphs import graph

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
