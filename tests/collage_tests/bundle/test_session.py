"""A bundle in place of an onnxruntime session, beside one of the same model."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import collage
from collage.backends.contract.errors import InputError
from collage.bundle.session import NodeArg
from collage.tensor_info import TensorInfo
from tests.collage_tests.conftest import Optimized, one_block


@pytest.fixture(scope="module")
def peer() -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(one_block().SerializeToString())


def test_is_described_as_onnxruntime_does(
    optimized: Optimized, peer: onnxruntime.InferenceSession
) -> None:
    session = collage.load(optimized.bundle)
    for ours, theirs in (
        (session.get_inputs(), peer.get_inputs()),
        (session.get_outputs(), peer.get_outputs()),
    ):
        assert [(a.name, a.shape, a.type) for a in ours] == [
            (a.name, a.shape, a.type) for a in theirs
        ]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "uint8", "bool"])
def test_types_are_named_as_in_onnx(dtype: str) -> None:
    names = {"float32": "tensor(float)", "float64": "tensor(double)"}
    found = NodeArg.of(TensorInfo((), dtype, "x"))
    assert (found.type, found.shape) == (names.get(dtype, f"tensor({dtype})"), [])


def test_gives_what_onnxruntime_gives(
    optimized: Optimized, peer: onnxruntime.InferenceSession
) -> None:
    session = collage.load(optimized.bundle)
    (taken,), (given,) = session.get_inputs(), session.get_outputs()
    feed = {taken.name: np.random.default_rng().standard_normal(taken.shape, np.float32)}
    (want,) = peer.run(None, feed)
    for names in (None, [], [given.name], given.name):
        (got,) = session.run(names, feed)
        assert np.abs(got - want).max() <= 1e-3 * np.abs(want).max()
    twice = session.run([given.name, given.name], feed)
    np.testing.assert_array_equal(twice[0], twice[1])


def test_says_what_is_wrong_with_a_call(optimized: Optimized) -> None:
    session = collage.load(optimized.bundle)
    name = session.get_inputs()[0].name
    image = session.random_inputs()[0]
    with pytest.raises(InputError, match=f"input '{name}' is missing"):
        session.run(None, {})
    with pytest.raises(InputError, match="unknown input 'picture'"):
        session.run(None, {name: image, "picture": image})
    with pytest.raises(InputError, match="unknown output 'scores'; the model gives"):
        session.run(["scores"], {name: image})
    with pytest.raises(InputError, match=r"inputs are given by name.* not as a list"):
        session.run(None, [image])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="takes no run_options"):
        session.run(None, {name: image}, object())  # type: ignore[arg-type]
