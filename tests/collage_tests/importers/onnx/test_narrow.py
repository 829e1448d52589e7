"""Weights that are stored in types which nothing computes with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from collage.backends.contract.errors import ModelError
from collage.importers import load_model
from tests.collage_tests.importers.onnx.onnx_models import (
    Array,
    by_importer,
    by_reference,
    fresh,
    model_of,
)

_PER_COLUMN = {"axis": 1}
_BLOCKED = {"axis": 0, "block_size": 4}


def _drawn(kind: str, *shape: int) -> Array:
    if "float" in kind:
        return fresh(*shape).astype(getattr(ml_dtypes, kind))
    limits = ml_dtypes.iinfo(getattr(ml_dtypes, kind))
    whole = np.random.default_rng().integers(limits.min, limits.max, shape, endpoint=True)
    return whole.astype(getattr(ml_dtypes, kind))


def _require_as_defined(model: ModelProto, x: Array) -> None:
    (wanted,), (found,) = by_reference(model, {"x": x}), by_importer(model, {"x": x})
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("how", [_PER_COLUMN, _BLOCKED], ids=["columns", "blocks"])
@pytest.mark.parametrize("kind", ["int4", "uint4", "float8_e4m3fn", "float4_e2m1fn"])
def test_weights_are_dequantized(kind: str, how: dict[str, Any]) -> None:
    steps = (5,) if how is _PER_COLUMN else (2, 5)
    constants = {"w": _drawn(kind, 5, 8), "s": np.abs(fresh(*steps)) + np.float32(0.1)}
    named = ["t", "s"]
    if "int" in kind:
        named.append("z")
        constants["z"] = _drawn(kind, *steps)
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("DequantizeLinear", named, ["d"], **how),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    x = fresh(3, 8)
    _require_as_defined(model_of(nodes, {"x": x}, ["y"], constants, opset=23), x)


def test_scales_of_blocks_are_narrow_floats_too() -> None:
    """As NVIDIA's 4-bit floats are stored: scales in 8 bits, with a scale of their own."""
    constants = {
        "w": _drawn("float4_e2m1fn", 8, 5),
        "s8": np.abs(_drawn("float8_e4m3fn", 2, 5).astype("float32")).astype("float8_e4m3fn"),
        "whole": np.float32(0.25),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["s8", "whole"], ["s"]),
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], **_BLOCKED),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    x = fresh(3, 8)
    _require_as_defined(model_of(nodes, {"x": x}, ["y"], constants, opset=23), x)


@pytest.mark.parametrize("kind", ["INT4", "UINT4"])
def test_values_that_are_rounded_as_it_runs_are_cut_off(kind: str) -> None:
    rounding = helper.make_node(
        *("QuantizeLinear", ["x", "s"], ["q"]), output_dtype=getattr(TensorProto, kind)
    )
    nodes = [rounding, helper.make_node("DequantizeLinear", ["q", "s"], ["y"])]
    x = fresh(4, 9) * np.float32(3)
    _require_as_defined(_opset_23(nodes, x, {"s": np.float32(0.25)}), x)


def test_a_constant_in_a_body_is_widened() -> None:
    """Zero points that a branch computes with stand in it as constants."""
    packed = helper.make_node(
        "Constant", [], ["w"], value=numpy_helper.from_array(_drawn("int4", 4))
    )
    body = [packed, helper.make_node("DequantizeLinear", ["w", "s"], ["d"])]
    given = [helper.make_empty_tensor_value_info("d")]
    other = [helper.make_node("Identity", ["x"], ["d2"])]
    branch = helper.make_node(
        *("If", ["c"], ["y"]),
        then_branch=helper.make_graph(body, "then", [], given),
        else_branch=helper.make_graph(
            other, "else", [], [helper.make_empty_tensor_value_info("d2")]
        ),
    )
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "none"], ["c"]),
        branch,
    ]
    constants = {"s": np.float32(0.5), "none": np.float32(0)}
    for x in (np.ones(4, "float32"), -np.ones(4, "float32")):
        _require_as_defined(_opset_23(nodes, x, constants), x)


def test_what_is_given_in_4_bits_is_refused() -> None:
    x = _drawn("int4", 4)
    node = helper.make_node("DequantizeLinear", ["x", "s"], ["y"])
    model = _opset_23([node], x, {"s": np.float32(0.5)})
    with pytest.raises(ModelError, match=r"not computed with here: int4 \(x\)"):
        load_model(model)


def _opset_23(nodes: Sequence[NodeProto], x: Array, constants: dict[str, Any]) -> ModelProto:
    return model_of(nodes, {"x": x}, ["y"], constants, opset=23)


@pytest.mark.parametrize("places", [[1, 5], [[0, 1], [1, 2]]], ids=["flat", "by axes"])
@pytest.mark.parametrize("where", ["initializer", "constant", "body"])
def test_sparse_weights_are_filled_in(places: Any, where: str) -> None:
    x, values = fresh(4, 2), numpy_helper.from_array(fresh(2), "w")
    stored = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(places)), [2, 3])
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    nodes, constants = [product], {}
    if where == "constant":
        nodes.insert(0, helper.make_node("Constant", [], ["w"], sparse_value=stored))
    elif where == "body":
        product.output[0] = "z"
        result = helper.make_tensor_value_info("z", TensorProto.FLOAT, [4, 3])
        bodies = [helper.make_graph([product], name, [], [result]) for name in ("a", "b")]
        for body in bodies:
            body.sparse_initializer.append(stored)
        branches = {"then_branch": bodies[0], "else_branch": bodies[1]}
        constants = {"yes": np.array(True)}
        nodes = [helper.make_node("If", ["yes"], ["y"], **branches)]
    model = model_of(nodes, {"x": x}, ["y"], constants)
    if where == "initializer":
        model.graph.sparse_initializer.append(stored)
    dense = np.zeros((2, 3), np.float32)
    dense[[0, 1], [1, 2]] = numpy_helper.to_array(values)
    (found,) = by_importer(model, {"x": x})
    np.testing.assert_allclose(found, x @ dense, rtol=1e-5, atol=1e-6)
