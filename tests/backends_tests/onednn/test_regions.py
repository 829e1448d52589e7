"""Joined oneDNN regions: views, zero-copy concatenation, in-place sums, several outputs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from collage.cost.reference import DEFAULT_RTOL, evaluate, largest_error
from tests.backends_tests.onednn.region_graphs import GRAPHS, X
from tests.backends_tests.onednn.regions import Regions, random_inputs, regions


@pytest.fixture(scope="module", params=["auto", "nhwc", "blocked", "plain"])
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Regions:
    folder = tmp_path_factory.mktemp(f"regions_{request.param}")
    return Regions(GRAPHS, folder, {"layout": request.param})


def test_every_graph_is_one_region(compiled: Regions) -> None:
    assert len(regions(compiled.module)) == len(GRAPHS)


@pytest.mark.parametrize("name", GRAPHS)
def test_agrees_with_the_reference(compiled: Regions, name: str) -> None:
    compiled.require_reference(name)


@pytest.mark.parametrize("name", ["row_bias", "residual"])
def test_callers_keep_their_number_of_threads(compiled: Regions, name: str) -> None:
    """Small operators run on one thread, large ones on all; both are this region's matter."""
    openmp = ctypes.CDLL("libgomp.so.1")
    before = openmp.omp_get_max_threads()
    openmp.omp_set_num_threads(before + 3)
    try:
        compiled.run(name, random_inputs(GRAPHS[name], np.random.default_rng()))
        assert openmp.omp_get_max_threads() == before + 3
    finally:
        openmp.omp_set_num_threads(before)


def test_inputs_are_never_written(compiled: Regions) -> None:
    rng = np.random.default_rng()
    for name, mod in GRAPHS.items():
        inputs = [tvm.runtime.tensor(array) for array in random_inputs(mod, rng)]
        before = [tensor.numpy().copy() for tensor in inputs]
        compiled.vm[name](*inputs)
        for tensor, array in zip(inputs, before, strict=True):
            np.testing.assert_array_equal(tensor.numpy(), array, err_msg=name)


def region_entry(compiled: Regions, name: str) -> Callable[..., None]:
    """The compiled function of the region that a graph's ``main`` calls; results are arguments."""
    (symbol,) = (
        str(binding.value.op.name_hint)
        for block in compiled.module[name].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call)
    )
    modules = [compiled.loaded, *compiled.loaded.imports]
    return next(module[symbol] for module in modules if module.implements_function(symbol))


def test_tensors_with_gaps_and_odd_addresses(compiled: Regions) -> None:
    """A caller of the function itself may hand over views of bigger arrays."""
    mod = GRAPHS["residual"]
    x = random_inputs(mod, np.random.default_rng())[0]
    memory = np.zeros((*X[:3], 2 * X[3] + 1), np.float32)
    given = memory[..., 1::2]
    given[...] = x
    result = np.full((X[1], X[0], *X[2:]), -1.0, np.float32)
    turned = result.transpose(1, 0, 2, 3)
    entry = region_entry(compiled, "residual")
    entry(*(tvm_ffi.from_dlpack(a, require_alignment=4) for a in (given, turned)))
    expected = evaluate(mod, [x])[0]
    assert largest_error(turned, expected) < DEFAULT_RTOL


def test_a_wrong_shape_is_an_error_that_says_so(compiled: Regions) -> None:
    entry = region_entry(compiled, "row_bias")
    x = tvm.runtime.tensor(np.zeros((3, 5, 7), np.float32))
    y = tvm.runtime.tensor(np.zeros((3, 5, 12), np.float32))
    with pytest.raises(RuntimeError, match=r"argument 0 must be float32 \(3, 5, 8\)"):
        entry(x, y)
    with pytest.raises(RuntimeError, match="needs 2 arguments, got 1"):
        entry(x)


def test_two_libraries_side_by_side(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each has a runtime of its own; unloading one leaves the other alone."""
    mod = GRAPHS["residual"]
    inputs = random_inputs(mod, np.random.default_rng())
    first = Regions({"main": mod}, tmp_path_factory.mktemp("first"))
    second = Regions({"main": mod}, tmp_path_factory.mktemp("second"), num_threads=1)
    expected = evaluate(mod, inputs)
    assert largest_error(first.run("main", inputs)[0], expected[0]) < DEFAULT_RTOL
    assert largest_error(second.run("main", inputs)[0], expected[0]) < DEFAULT_RTOL
    del first
    assert largest_error(second.run("main", inputs)[0], expected[0]) < DEFAULT_RTOL
