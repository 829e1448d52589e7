"""Reductions of truth values and over nothing, as ONNX defines them; norms that TVM lacks."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax
from tvm.relax import op

from collage.importers.onnx.operators.node import Converter, Node, Refused, const

_OF_NOTHING = {
    "ReduceSum": 0.0,
    "ReduceSumSquare": 0.0,
    "ReduceL1": 0.0,
    "ReduceL2": 0.0,
    "ReduceProd": 1.0,
    "ReduceLogSum": -np.inf,
    "ReduceLogSumExp": -np.inf,
    "ReduceMax": -np.inf,
    "ReduceMin": np.inf,
    "ReduceMean": np.nan,
}


def _reduction(name: str) -> Converter:
    def convert(node: Node) -> relax.Expr | None:
        shape, kept = node.shape(0), bool(node.integer("keepdims", 1))
        is_mean = name == "ReduceMean" and "int" in node.dtype(0)
        is_ours = is_mean or (name == "ReduceLogSumExp" and "float" in node.dtype(0))
        if 0 not in shape and node.dtype(0) != "bool" and not is_ours:
            return None
        axes = _axes(node, len(shape))
        if 0 not in shape and name == "ReduceLogSumExp" and is_ours:
            return _log_sum_exp(node, axes, kept)
        if 0 not in shape and is_mean:
            return _whole_mean(node, axes, kept)
        if 0 not in shape:
            function = op.max if name == "ReduceMax" else op.min
            numbers = node.emit(op.astype(node.operand(0), "int8"))
            return node.emit(op.astype(node.emit(function(numbers, sorted(axes), kept)), "bool"))
        rest = [1 if i in axes else n for i, n in enumerate(shape) if kept or i not in axes]
        kind, value = node.dtype(0), _OF_NOTHING[name]
        if "int" in kind and not np.isfinite(value):
            limits = np.iinfo(kind)
            value = limits.min if value < 0 else limits.max
        if kind == "bool":
            value = name == "ReduceMin"
        return node.emit(op.full(rest, const(value, kind), kind))

    return convert


def _whole_mean(node: Node, axes: set[int], kept: bool) -> relax.Expr:
    """Of whole numbers, cut towards zero as onnxruntime does; TVM's has another element type."""
    if not axes:
        return node.operand(0)
    emit, kind = node.emit, node.dtype(0)
    count = math.prod(extent for axis, extent in enumerate(node.shape(0)) if axis in axes)
    wide = emit(op.astype(node.operand(0), "int64"))
    total = emit(op.sum(wide, sorted(axes), kept))
    size = emit(op.floor_divide(emit(op.abs(total)), const(count, "int64")))
    return emit(op.astype(emit(op.multiply(size, emit(op.sign(total)))), kind))


def _log_sum_exp(node: Node, axes: set[int], kept: bool) -> relax.Expr:
    """Of what is all minus infinity that; TVM's is not a number."""
    emit, x, kind = node.emit, node.operand(0), node.dtype(0)
    if not axes:
        return x
    wide = kind if kind in ("float32", "float64") else "float32"
    x = x if kind == wide else emit(op.astype(x, wide))
    most = emit(op.max(x, sorted(axes), keepdims=True))
    most = emit(op.where(emit(op.isinf(most)), const(0.0, wide), most))
    total = emit(op.sum(emit(op.exp(emit(op.subtract(x, most)))), sorted(axes), kept))
    rest = [1 if i in axes else n for i, n in enumerate(node.shape(0)) if kept or i not in axes]
    found = emit(op.add(emit(op.log(total)), emit(op.reshape(most, rest))))
    return found if kind == wide else emit(op.astype(found, kind))


def _axes(node: Node, rank: int) -> set[int]:
    named = node.axes(1, rank)
    if named is None:
        named = node.integers("axes", ())
    if not named and node.integer("noop_with_empty_axes", 0):
        return set()
    return {axis % rank for axis in named or range(rank)}


def _argument(node: Node) -> None:
    if 0 in node.shape(0):
        raise Refused("a reduction over an empty set")


def _norm(node: Node) -> relax.Expr:
    """Divided by the norm along an axis; where that is zero, zero."""
    emit, x, kind = node.emit, node.operand(0), node.dtype(0)
    axis, power = node.integer("axis", -1), node.integer("p", 2)
    if power == 1:
        norm = emit(op.sum(emit(op.abs(x)), [axis], keepdims=True))
    elif power == 2:
        norm = emit(op.sqrt(emit(op.sum(emit(op.multiply(x, x)), [axis], keepdims=True))))
    else:
        raise Refused(f"the norm of order {power} is not in the standard")
    none = emit(op.equal(norm, const(0.0, kind)))
    return emit(op.divide(x, emit(op.where(none, const(1.0, kind), norm))))


CONVERTERS: dict[str, Converter] = {
    **{name: _reduction(name) for name in _OF_NOTHING},
    "ArgMax": _argument,
    "ArgMin": _argument,
    "LpNormalization": _norm,
}
