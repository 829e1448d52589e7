"""Sequences of tensors: how long they are, and bodies that run for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import pytest
from onnx import TensorProto, helper

from collage.backends.contract.errors import ModelError
from collage.importers import load_model
from tests.collage_tests.importers.onnx.onnx_models import (
    Array,
    by_importer,
    by_onnxruntime,
    by_reference,
    fresh,
    require_same,
)

_FLOAT = TensorProto.FLOAT


def _values(*names: str) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, _FLOAT, None) for name in names]


def _body(nodes: Sequence[onnx.NodeProto], given: Sequence[str], results: Sequence[str]) -> object:
    return helper.make_graph(list(nodes), "body", _values(*given), _values(*results))


def _model(
    nodes: Sequence[onnx.NodeProto], given: Mapping[str, Array], outputs: Sequence[str]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "net",
        [helper.make_tensor_value_info(name, _FLOAT, x.shape) for name, x in given.items()],
        _values(*outputs),
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def test_a_body_for_each_tensor_of_a_sequence() -> None:
    """With a tensor that all share, under the name that it has in the body, and two results."""
    body = _body(
        [helper.make_node("Mul", ["e", "w"], ["o"]), helper.make_node("Add", ["e", "e"], ["p"])],
        ["e", "w"],
        ["o", "p"],
    )
    nodes = [
        helper.make_node("SplitToSequence", ["a"], ["s"], axis=0, keepdims=0),
        helper.make_node("SequenceMap", ["s", "w"], ["t", "u"], body=body),
        helper.make_node("ConcatFromSequence", ["t"], ["y"], axis=0, new_axis=1),
        helper.make_node("ConcatFromSequence", ["u"], ["z"], axis=0),
    ]
    given = {"a": fresh(4, 3), "w": fresh(3)}
    model = _model(nodes, given, ["y", "z"])
    require_same(by_importer(model, given), by_onnxruntime(model, given))


def test_a_body_of_two_sequences() -> None:
    body = _body([helper.make_node("Sub", ["e", "f"], ["o"])], ["e", "f"], ["o"])
    nodes = [
        helper.make_node("SequenceConstruct", ["a", "b", "a"], ["s"]),
        helper.make_node("SequenceInsert", ["s", "b"], ["longer"]),
        helper.make_node("SplitToSequence", ["c"], ["r"], axis=0, keepdims=0),
        helper.make_node("SequenceMap", ["longer", "r"], ["t"], body=body),
        helper.make_node("SequenceMap", ["t", "t"], ["none"], body=body),
        helper.make_node("ConcatFromSequence", ["t"], ["y"], axis=0, new_axis=1),
        helper.make_node("ConcatFromSequence", ["none"], ["z"], axis=0),
    ]
    given = {"a": fresh(3), "b": fresh(3), "c": fresh(4, 3)}
    model = _model(nodes, given, ["y", "z"])
    require_same(by_importer(model, given), by_onnxruntime(model, given))


def test_a_loop_as_often_as_a_sequence_is_long() -> None:
    body = helper.make_graph(
        [
            helper.make_node("SequenceAt", ["s", "i"], ["one"]),
            helper.make_node("Add", ["sum", "one"], ["more"]),
            helper.make_node("Identity", ["going"], ["on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            *_values("sum"),
        ],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []), *_values("more")],
    )
    nodes = [
        helper.make_node("SequenceConstruct", ["a", "b"], ["s"]),
        helper.make_node("SequenceLength", ["s"], ["count"]),
        helper.make_node("Loop", ["count", "", "a"], ["y"], body=body),
    ]
    given = {"a": fresh(3), "b": fresh(3)}
    model = _model(nodes, given, ["y"])
    require_same(by_importer(model, given), by_onnxruntime(model, given))


def test_a_sequence_of_a_length_that_data_decide_is_refused() -> None:
    body = _body([helper.make_node("Relu", ["e"], ["o"])], ["e"], ["o"])
    nodes = [
        helper.make_node("NonZero", ["a"], ["places"]),
        helper.make_node("Cast", ["places"], ["floats"], to=_FLOAT),
        helper.make_node("SplitToSequence", ["floats"], ["s"], axis=1),
        helper.make_node("SequenceMap", ["s"], ["t"], body=body),
        helper.make_node("ConcatFromSequence", ["t"], ["y"], axis=1),
    ]
    with pytest.raises(ModelError, match=r"cannot be imported: how .* depends on data"):
        load_model(_model(nodes, {"a": fresh(5)}, ["y"]))


def _given_back(
    nodes: Sequence[onnx.NodeProto], given: Mapping[str, Array], outputs: Sequence[str]
) -> onnx.ModelProto:
    """A model whose outputs are of the types that they turn out to be of."""
    model = _model(nodes, given, [])
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    inferred = onnx.shape_inference.infer_shapes(model)
    kinds = {value.name: value for value in (*inferred.graph.value_info, *inferred.graph.output)}
    del model.graph.output[:]
    model.graph.output.extend(kinds[name] for name in outputs)
    return model


def test_a_sequence_that_is_given_back_is_its_tensors() -> None:
    """Of tensors that are not alike, cut off a tensor, and between other outputs."""
    nodes = [
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("SequenceConstruct", ["r", "b"], ["s"]),
        helper.make_node("SplitToSequence", ["a"], ["t"], axis=0, keepdims=0),
        helper.make_node("Abs", ["b"], ["y"]),
    ]
    given = {"a": fresh(2, 3), "b": fresh(4)}
    model = _given_back(nodes, given, ["s", "y", "t"])
    loaded = load_model(model)
    assert [one.name for one in loaded.outputs] == ["s.0", "s.1", "y", "t.0", "t.1"]
    first, y, second = by_reference(model, given)
    require_same(by_importer(model, given), [*first, y, *second])


def test_a_sequence_beside_rows_that_data_choose() -> None:
    """The graph is converted twice."""
    nodes = [
        helper.make_node("NonZero", ["a"], ["places"]),
        helper.make_node("SplitToSequence", ["b"], ["s"], axis=0),
    ]
    given = {"a": fresh(5), "b": fresh(2, 2)}
    model = _given_back(nodes, given, ["s", "places"])
    loaded = load_model(model)
    assert [one.name for one in loaded.outputs[:3]] == ["s.0", "s.1", "places"]
    assert len(loaded.chosen) == 1


def test_a_sequence_that_is_given_back_and_has_nothing_in_it() -> None:
    nodes = [helper.make_node("SequenceEmpty", [], ["s"]), helper.make_node("Abs", ["a"], ["y"])]
    with pytest.raises(ModelError, match="'s', an output, is empty"):
        load_model(_given_back(nodes, {"a": fresh(2)}, ["y", "s"]))


def test_optional_values_are_there(caplog: pytest.LogCaptureFixture) -> None:
    tensor = helper.make_tensor_type_proto(_FLOAT, [2, 3])
    optional = helper.make_optional_type_proto(tensor)
    graph = helper.make_graph(
        [
            helper.make_node("OptionalGetElement", ["x"], ["a"]),
            helper.make_node("Exp", ["a"], ["b"]),
            helper.make_node("Optional", ["b"], ["y"]),
        ],
        "net",
        [helper.make_value_info("x", optional)],
        [helper.make_value_info("y", optional)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    given = {"x": fresh(2, 3)}
    require_same(by_importer(model, given), by_onnxruntime(model, given))
    assert "input 'x' is optional; it has to be given" in caplog.text
