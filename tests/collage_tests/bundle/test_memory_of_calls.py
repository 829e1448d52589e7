"""Arrays go in and out without a copy, and never share what is not the caller's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import collage
from collage.bundle import Bundle
from collage.bundle.tensors import empty_array, output_arrays, to_tvm
from collage.testing import constant, graph
from tests.collage_tests.pipeline.flat_costs import FlatCosts

Body = Callable[..., relax.Expr]
CPU = tvm.cpu()


def _bundle(body: Body, folder: Path, shape: tuple[int, ...] = (4, 16)) -> Bundle:
    result = collage.optimize(
        graph([shape], body), ["llvm"], strategy="single:tvm", cost_model=FlatCosts("tvm")
    )
    return collage.load(result.export(folder / "net.bundle"))


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "float64", "int8", "int64", "uint8", "bool"]
)
def test_an_aligned_array_is_used_as_it_lies(dtype: str) -> None:
    array = empty_array((3, 7), dtype)
    array[...] = np.random.default_rng().integers(0, 2, (3, 7))
    tensor = to_tvm(array, CPU)
    assert tensor.data_ptr() == array.ctypes.data
    np.testing.assert_array_equal(tensor.numpy(), array)


def test_what_cannot_be_used_is_copied_and_right() -> None:
    rng = np.random.default_rng()
    aligned = empty_array((4, 8), "float32")
    aligned[...] = rng.standard_normal((4, 8))
    read_only = empty_array((4, 8), "float32")
    read_only[...] = aligned
    read_only.flags.writeable = False
    raw = empty_array((33,), "float32")
    raw[1:] = aligned.ravel()
    shifted = raw[1:].reshape(4, 8)
    turned = np.ascontiguousarray(aligned.T).T
    for array in (read_only, shifted, turned):
        tensor = to_tvm(array, CPU)
        assert tensor.data_ptr() != array.ctypes.data
        assert tensor.data_ptr() % 64 == 0
        np.testing.assert_array_equal(tensor.numpy(), aligned)
    scalar = np.asarray(rng.standard_normal(), "float32")
    assert to_tvm(scalar, CPU).numpy() == scalar


def test_results_belong_to_the_caller(compiled_bundle: Path) -> None:
    """Written over, kept over later calls, and still what they were when the bundle is gone."""
    bundle = collage.load(compiled_bundle)
    image = bundle.empty_inputs()[0]
    rng = np.random.default_rng()
    image[...] = rng.standard_normal(image.shape)
    first = bundle(image)
    kept = first.copy()
    assert first.flags.writeable
    others = []
    for _ in range(8):
        image[...] = rng.standard_normal(image.shape)
        others.append(bundle(image))
    np.testing.assert_array_equal(first, kept)
    begins = {array.ctypes.data for array in (first, *others)}
    assert len(begins) == 9
    del bundle
    np.testing.assert_array_equal(first, kept)


def test_a_result_is_the_tensor_s_own_memory() -> None:
    made = tvm.runtime.tensor(np.random.default_rng().standard_normal((5, 3)).astype("float32"))
    (array,) = output_arrays([made], [], borrowed=())
    assert array.ctypes.data == made.data_ptr()
    (copied,) = output_arrays([made], [], borrowed=None)
    assert copied.ctypes.data != made.data_ptr()
    one, other = output_arrays([made, made], [], borrowed=())
    one[...] = 0
    assert (other != 0).any() and not np.shares_memory(one, other)


def test_inputs_and_weights_that_are_results_are_copied(tmp_path: Path) -> None:
    weights = constant(4, 16)

    def body(emit: Callable[[relax.Expr], relax.Var], x: relax.Var) -> relax.Expr:
        return relax.Tuple([emit(op.exp(x)), x, emit(op.reshape(x, (16, 4))), weights])

    bundle = _bundle(body, tmp_path)
    given = bundle.empty_inputs()[0]
    given[...] = np.random.default_rng().uniform(-1, 1, given.shape)
    before = given.copy()
    for _ in range(2):
        exp, same, turned, constants = bundle(given)
        np.testing.assert_allclose(exp, np.exp(before), rtol=1e-5)
        np.testing.assert_array_equal(same, before)
        np.testing.assert_array_equal(turned, before.reshape(16, 4))
        np.testing.assert_array_equal(constants, weights.value.numpy())
        for result in (exp, same, turned, constants):
            result[...] = -7
        np.testing.assert_array_equal(given, before)
