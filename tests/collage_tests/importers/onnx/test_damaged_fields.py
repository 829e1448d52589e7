"""Files whose bytes are right and whose fields are not: each was once a bare error of Python's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import onnx.parser
import pytest

from collage.backends.contract.errors import ModelError
from collage.importers import load_model

_TEXT = """<ir_version: 8, opset_import: ["" : 17]>
net (float[2, 3] x, float[2, 3] y) => (float[2, 3] z) {
    one = Constant <value = float[1] {1.0}> ()
    s = Add(x, y)
    z = Mul(s, one)
}"""

_SCAN = """<ir_version: 8, opset_import: ["" : 17]>
net (float[3] state, float[2, 3] x) => (float[3] last) {
    last = Scan <num_scan_inputs = 1, body = one (float[3] s, float[3] e) => (float[3] t)
        { t = Add(s, e) }> (state, x)
}"""


def _without_outputs(model: onnx.ModelProto) -> None:
    del model.graph.node[0].output[:]


def _of_no_type(model: onnx.ModelProto) -> None:
    model.graph.input[0].ClearField("type")


def _of_no_elements(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.ClearField("elem_type")


def _of_an_unknown_type(model: onnx.ModelProto) -> None:
    model.graph.output[0].type.tensor_type.elem_type = -1


def _with_one_name_twice(model: onnx.ModelProto) -> None:
    model.graph.input[1].name = "x"


def _of_another_domain(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 11
    model.graph.node[1].domain = "Where"


def _of_no_version(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = -2


@pytest.mark.parametrize(
    "damage",
    [
        *(_without_outputs, _of_no_type, _of_no_elements, _of_an_unknown_type),
        *(_with_one_name_twice, _of_another_domain, _of_no_version),
    ],
)
def test_what_the_checker_would_refuse(
    damage: Callable[[onnx.ModelProto], None], tmp_path: Path
) -> None:
    model = onnx.parser.parse_model(_TEXT)
    load_model(model)
    damage(model)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError) as caught:
        load_model(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("lost", ["body", "num_scan_inputs"])
def test_a_loop_without_what_it_needs(lost: str) -> None:
    model = onnx.parser.parse_model(_SCAN)
    load_model(model)
    node = model.graph.node[0]
    kept = [attribute for attribute in node.attribute if attribute.name != lost]
    del node.attribute[:]
    node.attribute.extend(kept)
    with pytest.raises(ModelError, match=r"the graph is damaged|is required"):
        load_model(model)


def test_a_name_with_a_line_break_is_shown_in_one_line() -> None:
    model = onnx.parser.parse_model(_TEXT)
    model.graph.node[1].input[1] = "\n\x1b[2Jy"
    with pytest.raises(ModelError, match=r"uses '\\n\\x1b\[2Jy', which nothing defines"):
        load_model(model)


@pytest.mark.parametrize("attributes", ["axis = 0", "axis = 0, new_axis = 1"])
def test_a_tensor_in_place_of_a_sequence(attributes: str) -> None:
    # Once it was looked into without end.
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        net (float[2, 3] x) => (float z) {{
            y = Relu(x)
            z = ConcatFromSequence <{attributes}> (y)
        }}"""
    )
    with pytest.raises(ModelError, match="what it reads is no sequence"):
        load_model(model)
