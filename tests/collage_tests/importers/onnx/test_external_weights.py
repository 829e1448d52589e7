"""ONNX files whose weights lie in other files: beside them, behind links, or nowhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from collage.backends.contract.errors import ModelError
from collage.cost.reference import evaluate, largest_error
from collage.importers import load_model

WEIGHTS = np.random.default_rng(0).standard_normal((64, 8), np.float32)


def save(path: Path, data: str) -> None:
    """A product with weights, which lie in another file."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="dense")],
        "external",
        [helper.make_tensor_value_info("x", 1, [2, 64])],
        [helper.make_tensor_value_info("y", 1, [2, 8])],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path, save_as_external_data=True, location=data, size_threshold=0)


def require_right(path: Path) -> None:
    value: NDArray[np.float32] = np.random.default_rng().standard_normal((2, 64), np.float32)
    (found,) = evaluate(load_model(path).mod, [value])
    assert largest_error(found, value @ WEIGHTS) < 1e-5


def test_beside_the_model(tmp_path: Path) -> None:
    path = tmp_path / "external.onnx"
    save(path, "w.bin")
    require_right(path)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelError, match="external weights"):
        load_model(path)


@pytest.mark.parametrize("beside", ["model", "blobs", "elsewhere"])
def test_behind_links(tmp_path: Path, beside: str) -> None:
    """As Hugging Face's cache has them: names lead to files that are called by their hashes."""
    folder, blobs = tmp_path / "snapshot", tmp_path / "blobs"
    folder.mkdir()
    blobs.mkdir()
    path = folder / "model.onnx"
    save(path, "model.onnx_data")
    data = path.with_name("model.onnx_data")
    if beside == "model":
        data.rename(folder / "shard")
        data.symlink_to("shard")
    else:
        data.rename(blobs / "2c26b46b")
        data.symlink_to(blobs / "2c26b46b")
        if beside == "blobs":
            path.rename(blobs / "fcde2b2e")
            path.symlink_to(blobs / "fcde2b2e")
    if beside == "elsewhere":
        with pytest.raises(ModelError, match=r"external weights .*symbolic link"):
            load_model(path)
    else:
        require_right(path)
