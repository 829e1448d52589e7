"""Files that are odd but valid, through the whole way: each has to answer as onnxruntime does."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper

import collage
from collage.backends.contract.errors import ModelError, ShapeError
from collage.cost.models import DeviceSpec, RooflineCostModel
from collage.importers import load_model
from tests.collage_tests.importers.onnx.onnx_models import (
    Array,
    by_importer,
    by_onnxruntime,
    model_of,
    require_same,
)

_COSTS = RooflineCostModel(DeviceSpec("a processor", 1e11, 1e11, 1e11, bytes_per_sec=1e10))


def answers(model: onnx.ModelProto, given: dict[str, Array], folder: Path) -> list[Array]:
    """What the exported and loaded bundle answers; outputs bear the model's names."""
    result = collage.optimize(model, ["llvm"], cost_model=_COSTS)
    bundle = collage.load(result.export(folder / "bundle"))
    assert [info.name for info in bundle.inputs] == list(given)
    assert [info.name for info in bundle.outputs] == [value.name for value in model.graph.output]
    found = bundle(**given)
    return found if isinstance(found, list) else [found]


def compare(text: str, folder: Path, **given: Array) -> None:
    model = onnx.parser.parse_model(text)
    require_same(answers(model, given, folder), by_onnxruntime(model, given))


def fresh(*shape: int) -> Array:
    return np.random.default_rng().uniform(-1, 1, shape).astype("float32")


def test_inputs_of_rank_0(tmp_path: Path) -> None:
    compare(
        """<ir_version: 8, opset_import: ["" : 17]>
        net (float x, float[2] y) => (float z, float[2] w) { z = Exp(x) w = Mul(x, y) }""",
        tmp_path,
        x=fresh(),
        y=fresh(2),
    )


def test_outputs_that_are_inputs_or_initializers(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        net (float[2] x, float[3] unused) => (float[2] x, float[2] c, float[2] y, float[2] y2)
        <float[2] c = {1.0, 2.0}> { y = Add(x, c) y2 = Identity(y) }"""
    )
    given = {"x": fresh(2), "unused": fresh(3)}
    found = answers(model, given, tmp_path)
    c = np.array([1, 2], "float32")
    require_same(found, [given["x"], c, given["x"] + c, given["x"] + c])


def test_models_with_only_constants(tmp_path: Path) -> None:
    compare(
        """<ir_version: 8, opset_import: ["" : 17]>
        net () => (float[2] y, float[2] z) <float[2] c = {1.0, 2.0}> {
            y = Exp(c) z = Constant <value = float[2] {3.0, 4.0}> () }""",
        tmp_path,
    )


def test_initializers_that_are_inputs(tmp_path: Path) -> None:
    model = model_of(
        [helper.make_node("Add", ["x", "w"], ["y"])], {"x": fresh(2), "w": fresh(2)}, ["y"]
    )
    weights = fresh(2)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    given = {"x": fresh(2)}
    require_same(answers(model, given, tmp_path), [given["x"] + weights])


def test_names_of_any_kind_and_nodes_named_twice(tmp_path: Path) -> None:
    names = ["a/b:0", "1st-input", "größe.x y", "return"]
    given = {name: fresh(2) for name in names}
    nodes = [
        helper.make_node("Add", names[:2], ["sum;1"], name="same"),
        helper.make_node("Mul", ["sum;1", names[2]], ["%2"], name="same"),
        helper.make_node("Sub", ["%2", names[3]], ["out put/0"], name=""),
    ]
    model = model_of(nodes, given, ["out put/0"])
    found = answers(model, given, tmp_path)
    model.graph.node[1].name = "another"  # onnxruntime insists.
    require_same(found, by_onnxruntime(model, given))


def test_empty_tensors(tmp_path: Path) -> None:
    given = {"x": np.zeros((0, 3), "float32"), "y": fresh(2, 3)}
    nodes = [
        helper.make_node("Concat", ["x", "y"], ["joined"], axis=0),
        helper.make_node("Relu", ["x"], ["nothing"]),
    ]
    model = model_of(nodes, given, ["joined", "nothing"])
    require_same(answers(model, given, tmp_path), by_onnxruntime(model, given))


def test_optional_inputs_and_outputs_left_empty(tmp_path: Path) -> None:
    given = {"x": fresh(2, 8)}
    nodes = [
        helper.make_node("Clip", ["x", "", "high"], ["a"]),
        helper.make_node("Split", ["a"], ["b", "unused"], axis=1),
        helper.make_node("Dropout", ["b"], ["y", ""]),
    ]
    constants = {"high": np.array(0.25, "float32")}
    model = model_of(nodes, given, ["y"], constants)
    require_same(answers(model, given, tmp_path), by_onnxruntime(model, given))


def test_one_name_for_two_sizes(caplog: pytest.LogCaptureFixture) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        net (float[n] x, float[n] y, float[n] z) => (float[m] w) {
            w = Concat <axis = 0> (x, y, z) }"""
    model = onnx.parser.parse_model(text)
    with caplog.at_level(logging.WARNING):
        imported = load_model(model, shapes={"x": (2,), "y": (3,), "z": (4,)})
    assert [info.shape for info in imported.inputs] == [(2,), (3,), (4,)]
    assert "dimension 'n' is given the sizes" in caplog.text
    # Which of them a third input has, nobody can say.
    with pytest.raises(ShapeError, match="'z' has open dimensions"):
        load_model(model, shapes={"x": (2,), "y": (3,)})


@pytest.mark.parametrize("opset", [7, 8, 9, 11, 13, 15, 17, 18, 21, 23])
def test_every_operator_set(opset: int, tmp_path: Path) -> None:
    given = {"x": fresh(2, 3, 4)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Softmax", ["b"], ["y"], axis=2),
    ]
    model = model_of(nodes, given, ["y"], {"w": fresh(4, 5)}, opset=opset)
    require_same(answers(model, given, tmp_path), by_onnxruntime(model, given))


def test_strings_are_refused() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        net (string[2] names) => (bool[2] y) { y = Equal(names, names) }"""
    with pytest.raises(ModelError, match="'names' holds strings"):
        load_model(onnx.parser.parse_model(text))


def test_a_file_that_is_laid_out_for_one_processor() -> None:
    """As onnxruntime saves convolutions where it may optimize as far as it can."""
    domain = "com.microsoft.nchwc"
    node = helper.make_node("Conv", ["x", "w"], ["y"], domain=domain, kernel_shape=[3, 3])
    given = {name: np.zeros((16, 16, 3, 3), "float32") for name in "xw"}
    with pytest.raises(ModelError, match=r"nchwc.Conv .*save it with optimizations up to"):
        load_model(model_of([node], given, ["y"], beyond=domain))


@pytest.mark.parametrize("version", [13, 18])
def test_functions_may_be_written_for_another_version_than_the_model(version: int) -> None:
    """Where their operators are the same in both: scikit-learn's exporter writes such."""
    nodes = [helper.make_node("Abs", ["a"], ["b"]), helper.make_node("Sqrt", ["b"], ["c"])]
    function = helper.make_function(
        "own", "Root", ["a"], ["c"], nodes, [helper.make_opsetid("", version)]
    )
    x = np.random.default_rng().random((3, 4)).astype("float32")
    model = model_of(
        [helper.make_node("Root", ["x"], ["y"], domain="own")], {"x": x}, ["y"], beyond="own"
    )
    model.functions.append(function)
    require_same(by_importer(model, {"x": x - 0.5}), [np.sqrt(np.abs(x - 0.5))])


def test_attributes_that_calls_of_functions_leave_out() -> None:
    """A function says what they are then; calls of other functions and in branches, too."""
    text = """<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
        net (float[3, 4] x, bool c) => (float[3, 4] y) {
            y = If (c) <
                then_branch = then () => (float[3, 4] a) { a = own.Outer (x) },
                else_branch = otherwise () => (float[3, 4] b) { b = own.Leaky <slope = 0.5> (x) }
            >
        }
        <domain: "own", opset_import: ["" : 18]>
        Leaky <slope: float = 0.1> (x) => (y) { y = LeakyRelu <alpha: float = @slope> (x) }
        <domain: "own", opset_import: ["" : 18, "own" : 1]>
        Outer <slope: float = 0.25> (x) => (y) {
            z = own.Leaky <slope: float = @slope> (x)
            y = own.Leaky (z)
        }"""
    model = onnx.parser.parse_model(text)
    x = np.random.default_rng(3).standard_normal((3, 4), np.float32)
    for condition, slope in ((True, 0.025), (False, 0.5)):
        given = {"x": x, "c": np.array(condition)}
        require_same(by_importer(model, given), [np.where(x < 0, slope * x, x)])


def test_how_many_tensors_a_sequence_holds() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        net (float[5, 3] x) => (float[1, 3] y, int64 n) {
            two = Constant <value_int = 2> ()
            parts = SplitToSequence <axis = 0> (x, two)
            n = SequenceLength (parts)
            last = Constant <value_int = -1> ()
            y = SequenceAt (parts, last)
        }"""
    x = np.random.default_rng(5).standard_normal((5, 3), np.float32)
    found = by_importer(onnx.parser.parse_model(text), {"x": x})
    require_same(found, [x[4:], np.array(3)])


@pytest.mark.parametrize("damaged", [b"R\xe9lu", b"\xb5\xf4\xaa\xca"])
def test_text_that_is_none_is_shown(damaged: bytes, tmp_path: Path) -> None:
    """Protobuf lets it pass, and whatever reads it next fails in its own words."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        net (float[4] x) => (float[4] y) { y = Relu(x) }"""
    )
    content = model.SerializeToString()
    assert content.count(b"Relu") == 1
    path = tmp_path / "damaged.onnx"
    path.write_bytes(content.replace(b"Relu", damaged))
    with pytest.raises(ModelError, match=r"the graph is damaged: 'op_type' is no text but b'"):
        load_model(path)


@pytest.mark.parametrize("constant", ["value_int = 1", "value = int64 {1}"])
def test_axes_that_are_a_number(constant: str, tmp_path: Path) -> None:
    """In the graph, in bodies whose values have equal names, and in a function."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        net (float[4, 3] x, bool b) => (float[4, 3, 1] y, float[4, 1, 3] z, float[1, 4, 3] w)
        <int64 last = {{-1}}> {{
            y = Unsqueeze(x, last)
            w = own.first(x)
            z = If (b) <
                then_branch = yes () => (float[4, 1, 3] p) {{
                    one = Constant <{constant}> ()
                    r = Unsqueeze(x, one)
                    p = Neg(r)
                }},
                else_branch = no () => (float[4, 1, 3] p) {{
                    one = Constant <value_int = -2> ()
                    r = Unsqueeze(x, one)
                    p = Exp(r)
                }}
            >
        }}
        <domain: "own", opset_import: ["" : 17]>
        first (v) => (u) {{ none = Constant <value_int = 0> () u = Unsqueeze(v, none) }}"""
    )
    for tensor in model.graph.initializer:
        del tensor.dims[:]
    (choice,) = (node for node in model.graph.node if node.op_type == "If")
    for node in choice.attribute[0].g.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            del node.attribute[0].t.dims[:]
    for b in (True, False):
        given = {"x": fresh(4, 3), "b": np.array(b)}
        require_same(answers(model, given, tmp_path / str(b)), by_onnxruntime(model, given))


def test_nodes_in_any_order(tmp_path: Path) -> None:
    """Also a branch that reads what is written later; the standard asks for an order."""
    compare(
        """<ir_version: 8, opset_import: ["" : 17]>
        net (float[4] x, bool c) => (float[4] y) {
            y = Add (b, b)
            b = If (c) <
                then_branch = t () => (float[4] p) { p = Neg (a) },
                else_branch = e () => (float[4] r) { r = Exp (a) }
            >
            a = Relu (x)
        }""",
        tmp_path,
        x=np.random.default_rng().standard_normal(4).astype(np.float32),
        c=np.array(True),
    )


def test_nodes_that_wait_for_each_other_are_named() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        net (float[4] x) => (float[4] y) { a = Add (x, b) b = Neg (a) y = Relu (b) }"""
    )
    with pytest.raises(ModelError, match=r"Neg \(b\) waits for Add \(a\), which waits for it"):
        load_model(model)


def test_a_value_that_two_nodes_write_is_damage() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        net (float[4] x) => (float[4] y) { y = Neg (x) y = Relu (x) }"""
    )
    with pytest.raises(ModelError, match="Neg and Relu both write 'y'"):
        load_model(model)


def test_a_weight_of_a_negative_extent_is_damage() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        net (float[3] x) => (float[3] y) <float[3] w = {1.0, 2.0, 3.0}> { y = Add (x, w) }"""
    )
    load_model(model)
    model.graph.initializer[0].dims[0] = -3
    with pytest.raises(ModelError, match=r"weight 'w' has the shape \[-3\]"):
        load_model(model)


@pytest.mark.parametrize("name", ["main", "lambda", "self"])
def test_values_are_called_like_functions(name: str, tmp_path: Path) -> None:
    x = np.random.default_rng().standard_normal(4).astype(np.float32)
    for text in (f"a = Relu (x) {name} = Neg (a)", f"q = Neg (x) {name} = Abs (q)"):
        compare(
            f"""<ir_version: 8, opset_import: ["" : 17]>
            net (float[4] x) => (float[4] {name}) {{ {text} }}""",
            tmp_path,
            x=x,
        )
