"""A model of more than 2 GB, from an ONNX file with external data to a call."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper

import collage
from tests.collage_tests.pipeline.flat_costs import FlatCosts

LAYERS, SIZE = 6, 9728
NEEDED_BYTES = 12 << 30


def _write(folder: Path) -> Path:
    """Dense layers with a relu each; weights in a file of their own."""
    rng = np.random.default_rng()
    nodes, weights, value = [], [], "x"
    with (folder / "net.data").open("wb") as data:
        for layer in range(LAYERS):
            array = rng.standard_normal((SIZE, SIZE), dtype=np.float32)
            array *= np.float32(1.4 / np.sqrt(SIZE))
            tensor = TensorProto(name=f"w{layer}", data_type=TensorProto.FLOAT, dims=array.shape)
            tensor.data_location = TensorProto.EXTERNAL
            place = {"location": "net.data", "offset": data.tell(), "length": array.nbytes}
            for key, entry in place.items():
                tensor.external_data.add(key=key, value=str(entry))
            array.tofile(data)
            weights.append(tensor)
            nodes.append(helper.make_node("MatMul", [value, tensor.name], [f"m{layer}"]))
            nodes.append(helper.make_node("Relu", [f"m{layer}"], [f"r{layer}"]))
            value = f"r{layer}"
        assert data.tell() > 1 << 31
    given, found = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, SIZE]) for name in ("x", value)
    )
    made = helper.make_graph(nodes, "net", [given], [found], weights)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "net.onnx"
    path.write_bytes(model.SerializeToString())
    onnx.checker.check_model(str(path))
    return path


@pytest.mark.slow
def test_it_is_compiled_and_computes_what_numpy_does(tmp_path: Path) -> None:
    if psutil.virtual_memory().available < NEEDED_BYTES:
        pytest.skip("there is too little memory")
    path = _write(tmp_path)
    result = collage.optimize(path, ["llvm"], strategy="single:tvm", cost_model=FlatCosts("tvm"))
    folder = result.export(tmp_path / "net.bundle")
    del result
    assert (folder / "model.so").stat().st_size < 1 << 20
    assert sum(file.stat().st_size for file in (folder / "weights").iterdir()) > 1 << 31
    x = np.random.default_rng().standard_normal((2, SIZE)).astype("float32")
    want = x
    for array in np.memmap(tmp_path / "net.data", "float32", "r", shape=(LAYERS, SIZE, SIZE)):
        want = np.maximum(want @ array, 0)
    found = collage.load(folder)(x)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5 * float(want.max()))
