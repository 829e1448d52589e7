"""Model files of every format, and the errors that a user's mistakes get."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
import tvm_ffi
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from benchmarks.networks.tiny import tiny_mobilenet
from collage.backends.contract.errors import ModelError, ShapeError
from collage.cost.reference import evaluate, largest_error
from collage.importers import load_model
from collage.tensor_info import TensorInfo
from tests.collage_tests.normalize.oracle import module, normal
from tests.collage_tests.normalize.test_models import by_onnxruntime


def dynamic_model() -> onnx.ModelProto:
    """Two inputs that share a batch dimension; a flatten through computed shapes."""
    return onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 13]>
        flatten (float[batch,3,size,4] image, float[batch,1] gain) => (float[batch,rest] out)
        <int64[1] zero = {0}, int64[1] minus = {-1}> {
            shape = Shape(image)
            first = Gather(shape, zero)
            wanted = Concat<axis=0>(first, minus)
            flat = Reshape(image, wanted)
            scaled = Mul(flat, gain)
            out = Relu(scaled)
        }
    """)


def saved(model: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path


def one_node(operator: str, inputs: list[tuple[int, ...]], **attributes: object) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(len(inputs))]
    node = helper.make_node(operator, names, ["y"], name=f"my_{operator}", **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info(n, 1, s) for n, s in zip(names, inputs, strict=True)],
        [helper.make_tensor_value_info("y", 1, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_onnx_file_by_content_not_suffix(tmp_path: Path) -> None:
    model = tiny_mobilenet()
    for name in ("net.onnx", "net.bin", "net.json"):
        imported = load_model(saved(model, tmp_path, name))
        assert imported.source_format == "onnx"
        assert imported.name == "net"
    assert imported.inputs == (TensorInfo((1, 3, 32, 32), "float32", "image"),)
    (output,) = imported.outputs
    assert output.name == model.graph.output[0].name
    assert output.shape == (1, 10)


def test_open_dimensions_are_made_concrete_and_shapes_folded() -> None:
    model = dynamic_model()
    imported = load_model(model, shapes={"image": (2, 3, 5, 4)})
    assert [spec.shape for spec in imported.inputs] == [(2, 3, 5, 4), (2, 1)]
    assert imported.outputs == (TensorInfo((2, 60), "float32", "out"),)
    random = np.random.default_rng(0)
    values = [random.standard_normal(spec.shape, np.float32) for spec in imported.inputs]
    (found,) = evaluate(imported.mod, values)
    (wanted,) = by_onnxruntime(model, {"image": values[0], "gain": values[1]})
    assert largest_error(found, wanted) < 1e-6
    by_name = load_model(model, shapes={"batch": 2, "size": (5,)})
    assert (by_name.inputs, by_name.outputs) == (imported.inputs, imported.outputs)
    # The model that was given is still the one with open dimensions.
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


@pytest.mark.parametrize("shapes", [{"past": (1, 0, 4)}, {"old": (0,)}])
def test_an_open_dimension_may_be_empty(shapes: dict[str, tuple[int, ...]]) -> None:
    """As a decoder's cache is for the first of its tokens."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        step (float[1,old,4] past, float[1,3,4] keys) => (float[1,3,all] y) {
            all_keys = Concat<axis=1>(past, keys)
            turned = Transpose<perm=[0,2,1]>(all_keys)
            y = MatMul(keys, turned)
        }
    """)
    imported = load_model(model, shapes=shapes)
    past, keys = np.zeros((1, 0, 4), "float32"), np.ones((1, 3, 4), "float32")
    (found,) = evaluate(imported.mod, [past, keys])
    (wanted,) = by_onnxruntime(model, {"past": past, "keys": keys})
    assert largest_error(found, wanted) < 1e-6


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({}, r"'image' has open dimensions \(batch,3,size,4\).*--shape image=1,3,1,4"),
        ({"gain": (2, 1)}, r"'image' has open dimensions .*--shape image=2,3,1,4"),
        ({"picture": (1, 3, 5, 4)}, "'picture'; its inputs: image, gain; its open.*: batch, size"),
        ({"batch": (2,)}, r"'image' has open dimensions .*image=2,3,1,4, or --shape size=1$"),
        ({"batch": (2, 4), "size": (5,)}, "'batch' is a dimension, which has one whole number"),
        ({"batch": (True,), "size": (5,)}, "'batch' is a dimension"),
        ({"image": (1, 3, 5)}, "4 dimensions .* has 3"),
        ({"image": (1, 4, 5, 4)}, "contradicts its dimension of 3"),
        ({"image": (1, 3, -1, 4)}, "is no shape"),
    ],
)
def test_wrong_shapes_say_what_to_give(shapes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        load_model(dynamic_model(), shapes=shapes)


def test_node_names_become_variable_names() -> None:
    imported = load_model(one_node("Relu", [(2, 3)]))
    assert imported.mod["main"].body.blocks[0].bindings[0].var.name.startswith("my_Relu")


def test_every_operator_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    text = """
        <ir_version: 8, opset_import: ["" : 18, "my.domain" : 1]>
        unknown (float[2,4] x) => (float[2,4] out) {
            [first] a = my.domain.Magic(x)
            [second] b = my.domain.Magic(a)
            [spectrum] c = Unique <axis: int = 0> (b)
            [third] out = Relu(b)
        }
    """
    model = onnx.parser.parse_model(text)
    with pytest.raises(ModelError) as caught:
        load_model(saved(model, tmp_path))
    assert "my.domain.Magic (first, second)" in str(caught.value)
    assert "Unique (spectrum): the shape of its result depends on data" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_of_onnxruntimes_own_operators_mean_nothing_in_the_standard() -> None:
    model = one_node("Attention", [(1, 2, 4), (4, 12)], num_heads=2)
    with pytest.raises(ModelError, match=r"Attention \(my_Attention\)"):
        load_model(model)


def test_what_cannot_be_right_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match=r"my_ArgMax .*empty set"):
        load_model(one_node("ArgMax", [(2, 0, 3)], axis=1))


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space_in_both_orders(mode: str) -> None:
    model = one_node("DepthToSpace", [(1, 8, 2, 3)], blocksize=2, mode=mode)
    value = np.random.default_rng(0).standard_normal((1, 8, 2, 3), np.float32)
    (found,) = evaluate(load_model(model).mod, [value])
    assert np.array_equal(found, by_onnxruntime(model, {"x0": value})[0])


@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_transposed_convolutions_of_a_wanted_shape(rank: int, auto_pad: str) -> None:
    rng = np.random.default_rng()
    extents, kernel, strides, dilation = (
        rng.integers(low, high, rank).tolist() for low, high in ((3, 6), (1, 5), (1, 4), (1, 3))
    )
    wanted = [
        max(1, s * (n - 1) + (k - 1) * d + 1 + int(rng.integers(-3, s)))
        for n, k, s, d in zip(extents, kernel, strides, dilation, strict=True)
    ]
    attrs = {"strides": strides, "dilations": dilation, "kernel_shape": kernel}
    shapes = [(1, 2, *extents), (2, 3, *kernel)]
    model = one_node("ConvTranspose", shapes, **attrs, output_shape=wanted, auto_pad=auto_pad)
    given = {f"x{n}": rng.standard_normal(shape, np.float32) for n, shape in enumerate(shapes)}
    (found,) = evaluate(load_model(model).mod, list(given.values()))
    (expected,) = by_onnxruntime(model, given)
    assert found.shape == expected.shape == (1, 3, *wanted)
    assert largest_error(found, expected) < 1e-5


@pytest.mark.parametrize("opset", [6, 7, 9, 11, 13])
def test_old_operator_sets(opset: int) -> None:
    constants: dict[str, np.generic | np.ndarray] = {"half": np.full((5,), 0.5, np.float32)}
    legacy = {"broadcast": 1} if opset < 7 else {}
    nodes = [
        helper.make_node("Mul", ["x", "half"], ["a"], name="scale", **legacy),
        helper.make_node("Dropout", ["b"], ["c"], name="drop"),
        helper.make_node("Softmax", ["c"], ["d"], axis=1, name="soft"),
    ]
    if opset < 11:
        nodes.insert(1, helper.make_node("Clip", ["a"], ["b"], min=-0.5, max=0.75, name="clip"))
    else:
        constants |= {"low": np.float32(-0.5), "high": np.float32(0.75)}
        nodes.insert(1, helper.make_node("Clip", ["a", "low", "high"], ["b"], name="clip"))
    graph = helper.make_graph(
        nodes,
        "old",
        [helper.make_tensor_value_info("x", 1, [2, 3, 4, 5])],
        [helper.make_tensor_value_info("d", 1, [2, 3, 4, 5])],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=4)
    value = np.random.default_rng(0).standard_normal((2, 3, 4, 5), np.float32)
    (found,) = evaluate(load_model(model).mod, [value])
    bounded = np.clip(value * 0.5, -0.5, 0.75)
    # Up to opset 12 a softmax flattens everything from its axis on.
    powers = np.exp(bounded if opset > 12 else bounded.reshape(2, 60))
    wanted = (powers / powers.sum(axis=1, keepdims=True)).reshape(value.shape)
    assert largest_error(found, wanted) < 1e-6


def test_functions_of_the_model_are_expanded() -> None:
    text = """
        <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        outer (float[2,3] x) => (float[2,3] y) { y = local.twice (x) }
        <opset_import: ["" : 17], domain: "local">
        twice (a) => (b) { t = Relu(a) b = Add(t, t) }
    """
    value = np.random.default_rng(0).standard_normal((2, 3), np.float32)
    (found,) = evaluate(load_model(onnx.parser.parse_model(text)).mod, [value])
    assert np.allclose(found, 2 * np.maximum(value, 0))


@pytest.mark.parametrize("operator", ["Celu", "Swish"])
def test_standard_operators_defined_by_others_are_expanded(operator: str) -> None:
    model = one_node(operator, [(2, 3)])
    model.opset_import[0].version = 24
    value = np.random.default_rng(0).standard_normal((2, 3), np.float32)
    (found,) = evaluate(load_model(model).mod, [value])
    wanted = value / (1 + np.exp(-value))
    if operator == "Celu":
        wanted = np.maximum(value, 0) + np.minimum(0, np.exp(value) - 1)
    assert largest_error(found, wanted) < 1e-6


def relax_module() -> tvm.IRModule:
    return module([(2, 3)], lambda _, x: relax.op.add(relax.op.nn.relu(x), normal(3)))


def test_module_and_saved_json(tmp_path: Path) -> None:
    mod = relax_module()
    path = tmp_path / "saved.json"
    path.write_text(tvm.ir.save_json(mod), encoding="utf-8")
    for source, name in ((mod, "module"), (path, "relax-json")):
        imported = load_model(source)
        assert imported.source_format == name
        assert tvm_ffi.structural_equal(imported.mod, mod)
        assert imported.inputs == (TensorInfo((2, 3), "float32", "x0"),)
    load_model(mod, shapes={"x0": (2, 3)})
    with pytest.raises(ShapeError, match="fixed shape 2,3, not 4,3"):
        load_model(path, shapes={"x0": (4, 3)})


def test_tvmscript_runs_only_when_allowed(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(module([(2, 3)], lambda _, x: relax.op.exp(x)).script(), encoding="utf-8")
    with pytest.raises(ModelError, match="--allow-code"):
        load_model(path)
    imported = load_model(path, allow_code=True)
    assert imported.source_format == "tvmscript"
    value = np.ones((2, 3), np.float32)
    assert np.allclose(evaluate(imported.mod, [value])[0], np.e)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.onnx", b""),
        ("text.onnx", b"this is no model\n"),
        ("noise.bin", bytes(range(256)) * 40),
        ("truncated.onnx", None),
        ("list.json", b'[1, 2, {"root_index": 3}]'),
        ("broken.json", b'{"root_index": 53, "nodes": [{"type": "None"}]}'),
        ("cut.json", b'{"root_index": 53, "nodes": ['),
    ],
)
def test_files_that_are_no_models(tmp_path: Path, name: str, content: bytes | None) -> None:
    path = tmp_path / name
    path.write_bytes(tiny_mobilenet().SerializeToString()[:-7] if content is None else content)
    with pytest.raises(ModelError) as caught:
        load_model(path)
    assert re.match(r"^[^\n]*" + re.escape(name) + r"[^\n]*$", str(caught.value))


def test_missing_files_folders_and_foreign_objects(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        load_model(tmp_path / "nowhere.onnx")
    with pytest.raises(ModelError, match="is a folder"):
        load_model(tmp_path)
    with pytest.raises(ModelError, match="type 'int'"):
        load_model(3)
    with pytest.raises(ModelError, match="no Relax function 'main'"):
        load_model(tvm.IRModule())


def test_inputs_that_are_no_tensors() -> None:
    value = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    output = helper.make_tensor_value_info("y", 1, [1])
    index = numpy_helper.from_array(np.array(0), "i")
    node = helper.make_node("SequenceAt", ["s", "i"], ["y"])
    graph = helper.make_graph([node], "sequence", [value], [output], [index])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(ModelError, match="'s' is no tensor"):
        load_model(model)
