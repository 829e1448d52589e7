"""Arrays go in and out without a copy, and never share what is not the caller's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import op

import collage
from collage.backends.contract.errors import InputError
from collage.bundle import Bundle
from collage.bundle.calling import input_look
from collage.bundle.calling.input_look import InputLook
from collage.bundle.calling.random_inputs import random_array
from collage.bundle.calling.tensors import empty_array, of_the_caller, to_tvm
from collage.tensor_info import TensorInfo
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


@pytest.mark.parametrize("dtype", ["float16", "float64", "int64", "bool", "complex64"])
def test_copies_of_every_type_are_right(dtype: str) -> None:
    whole = np.random.default_rng().integers(0, 2, 33).astype(dtype)
    for array in (whole[1:].reshape(4, 8), whole[1:].reshape(4, 8).T, whole[5], np.array(whole[5])):
        tensor = to_tvm(array, CPU)
        assert tensor.data_ptr() % 64 == 0 and tensor.shape == array.shape
        np.testing.assert_array_equal(np.from_dlpack(tensor), array)


class Foreign:
    """An array of a library that nobody here knows."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "bool"])
def test_memory_of_others_is_taken_wherever_it_lies(dtype: str) -> None:
    aligned = empty_array((8, 6), dtype)
    aligned[...] = np.random.default_rng().integers(0, 2, (8, 6))
    raw = empty_array((49,), dtype)
    raw[1:] = aligned.ravel()
    for array in (aligned, raw[1:].reshape(8, 6), aligned[1:], aligned.T, aligned[::2]):
        as_it_lies = array.flags.c_contiguous and array.ctypes.data % 64 == 0
        for value in (Foreign(array), tvm_ffi.from_dlpack(array)):
            tensor = to_tvm(value, CPU)
            assert (tensor.data_ptr() == array.ctypes.data) == as_it_lies
            assert tensor.data_ptr() % 64 == 0
            np.testing.assert_array_equal(tensor.numpy(), array)


def test_tensors_of_types_that_numpy_lacks() -> None:
    halves = np.random.default_rng().standard_normal(40).astype("bfloat16")
    tensor = tvm.runtime.tensor(halves)
    assert to_tvm(tensor, CPU).data_ptr() == tensor.data_ptr()
    for skipped in (32, 3):
        view = tensor._create_view((40 - skipped,), relative_byte_offset=2 * skipped)
        taken = to_tvm(view, CPU)
        assert taken.data_ptr() % 64 == 0
        np.testing.assert_array_equal(taken.numpy(), halves[skipped:])
    drawn = random_array(TensorInfo((1000,), "bfloat16", "x"), seed=0)
    assert drawn.dtype == halves.dtype and len(np.unique(drawn)) > 100


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
    (kept,) = of_the_caller([made], [], borrowed=(), sizes=([], [60]))
    assert kept.data_ptr() == made.data_ptr()
    for borrowed in (None, (0,)):
        (copied,) = of_the_caller([made], [], borrowed=borrowed, sizes=([], [60]))
        assert copied.data_ptr() != made.data_ptr()
        np.testing.assert_array_equal(copied.numpy(), made.numpy())
    one, other = of_the_caller([made, made], [], borrowed=(), sizes=([], [60, 60]))
    assert one.data_ptr() != other.data_ptr()


WEIGHTS = constant(1, 16)


def _not_made_anew(emit: Callable[[relax.Expr], relax.Var], x: relax.Var) -> relax.Expr:
    wide = emit(op.broadcast_to(WEIGHTS, (40000, 16)))
    y = emit(op.exp(x))
    rows = emit(op.add(wide, emit(op.take(y, relax.const(np.array([1], "int64")), axis=0))))
    given = [x, emit(op.reshape(x, (16, 4)))]
    return relax.Tuple([y, *given, WEIGHTS, wide, rows, emit(op.exp(WEIGHTS)), y])


@pytest.fixture(scope="module")
def sharing(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return _bundle(_not_made_anew, tmp_path_factory.mktemp("sharing"))


def _torch(array: np.ndarray) -> Any:
    return pytest.importorskip("torch", exc_type=ImportError).from_numpy(array)


@pytest.mark.parametrize(
    "kind", [np.asarray, tvm.runtime.from_dlpack, pytest.param(_torch, marks=pytest.mark.torch)]
)
def test_what_is_not_made_anew_is_copied(sharing: Bundle, kind: Callable[..., Any]) -> None:
    given = sharing.empty_inputs()[0]
    given[...] = np.random.default_rng().uniform(-1, 1, given.shape)
    before, weights = given.copy(), WEIGHTS.value.numpy()
    want = [np.exp(before), before, before.reshape(16, 4), weights]
    want += [np.tile(weights, (40000, 1)), weights + np.exp(before[1:2]).repeat(40000, 0)]
    want += [np.exp(weights), np.exp(before)]
    for _ in range(2):
        results = [np.from_dlpack(result) for result in sharing(kind(given))]
        for result, expected in zip(results, want, strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-4)
            result[...] = -7
        np.testing.assert_array_equal(given, before)


def test_each_bucket_says_what_it_keeps(tmp_path: Path) -> None:
    """A small result is folded when the model is normalized, a large one when it is compiled."""
    n = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            shape = relax.ShapeExpr([n, 70000])
            wide = builder.emit(op.broadcast_to(relax.const(np.ones((1, 70000), "float32")), shape))
            out = builder.emit_output(relax.Tuple([builder.emit(op.exp(x)), wide]))
        builder.emit_func_output(out)
    options: dict[str, Any] = {"strategy": "single:tvm", "cost_model": FlatCosts("tvm")}
    result = collage.optimize(builder.get(), ["llvm"], shapes={"x": ["1|200", 8]}, **options)
    bundle = collage.load(result.export(tmp_path / "net.bundle"))
    assert bundle.manifest.borrowed_outputs == {"main_1": (1,), "main_200": (1,)}
    for rows in (1, 200):
        given = np.zeros((rows, 8), "float32")
        bundle(given)[1][...] = 7
        assert (bundle(given)[1] == 1).all()


def test_what_lies_right_is_asked_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions to tensors of TVM's took 10 us an input, more than a small network's kernels."""

    def body(emit: Callable[..., relax.Expr], x: relax.Var) -> relax.Expr:
        return emit(op.abs(x))

    function = _bundle(body, tmp_path)["main"]
    aligned = empty_array((4, 16), "float32")
    aligned[...] = np.random.default_rng().standard_normal((4, 16))
    tensor = tvm.runtime.tensor(aligned, CPU)
    part = tvm.runtime.tensor(np.zeros((4, 17), "float32"), CPU)
    shape_of, asked = InputLook._shape, []
    monkeypatch.setattr(InputLook, "_shape", lambda *args: asked.append("shape") or shape_of(*args))
    monkeypatch.setattr(input_look, "to_tvm", lambda *args: asked.append("tensor") or to_tvm(*args))
    for given in (aligned, tensor):
        (taken,) = function.prepared([given]).tensors
        begin = taken.data_ptr()
        assert begin == (given.ctypes.data if given is aligned else given.data_ptr())
        np.testing.assert_array_equal(np.from_dlpack(function.compute([given])[0]), np.abs(aligned))
    shifted = np.from_dlpack(part).ravel()[1:65].reshape(4, 16)
    assert not asked
    (same,) = function.compute([tvm_ffi.from_dlpack(shifted)])
    np.testing.assert_array_equal(np.from_dlpack(same), shifted)
    assert asked == ["tensor"], "it has to be copied"


def test_a_bound_call_reads_what_lies_in_its_inputs_then(tmp_path: Path) -> None:
    def body(emit: Callable[..., relax.Expr], x: relax.Var) -> relax.Expr:
        return emit(op.abs(x))

    bundle = _bundle(body, tmp_path)
    (array,) = bundle.empty_inputs()
    rng = np.random.default_rng()
    tensor = tvm.runtime.tensor(np.zeros((4, 16), "float32"), CPU)
    bound, of_tvm = bundle.bind([array]), bundle.bind([tensor])
    results = []
    for _ in range(3):
        array[...] = rng.standard_normal((4, 16))
        tensor.copyfrom(array)
        results.append((*bound(), np.abs(array)))
        np.testing.assert_array_equal(np.from_dlpack(of_tvm()[0]), np.abs(array))
    for got, wanted in results:
        np.testing.assert_array_equal(got, wanted, "later calls leave it alone")


@pytest.mark.parametrize("what", ["read-only", "shifted", "turned"])
def test_no_call_is_bound_to_what_would_be_copied(what: str, tmp_path: Path) -> None:
    def body(emit: Callable[..., relax.Expr], x: relax.Var) -> relax.Expr:
        return emit(op.abs(x))

    bundle = _bundle(body, tmp_path)
    raw = empty_array((65,), "float32")
    given = {
        "shifted": raw[1:].reshape(4, 16),
        "turned": raw[:64].reshape(16, 4).T,
        "read-only": raw[:64].reshape(4, 16),
    }[what]
    given.flags.writeable = what != "read-only"
    with pytest.raises(InputError, match="would be copied in each call"):
        bundle.bind([given])
