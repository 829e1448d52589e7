"""Operators on single elements, where TVM's importer ignores an attribute."""

from __future__ import annotations

import numpy as np
from onnx import helper
from tvm import relax, te, tirx
from tvm.relax import op

from collage.importers.elementary import hyperbolic
from collage.importers.onnx.operators.node import Converter, Node, Refused, const


def _is_infinite(node: Node) -> relax.Expr | None:
    negative, positive = (node.integer(f"detect_{s}", 1) for s in ("negative", "positive"))
    if negative and positive:
        return None
    x, kind = node.operand(0), node.dtype(0)
    if not negative and not positive:
        return node.emit(op.zeros(node.shape(0), "bool"))
    return node.emit(op.equal(x, const(np.inf if positive else -np.inf, kind)))


def _modulo(node: Node) -> relax.Expr | None:
    """With the divisor's sign; TVM's has the dividend's for floating-point numbers."""
    if node.integer("fmod", 0) or "float" not in node.dtype(0):
        return None
    emit, y, kind = node.emit, node.operand(1), node.dtype(0)
    x, zero = node.operand(0), const(0.0, kind)
    whole = emit(op.trunc(emit(op.divide(x, y))))
    rest = emit(op.subtract(x, emit(op.multiply(whole, y))))
    # Of a finite number an infinite divisor leaves all.
    beyond = const(np.inf, kind)
    finite = emit(op.less(emit(op.abs(x)), beyond))
    alone = emit(op.logical_and(finite, emit(op.equal(emit(op.abs(y)), beyond))))
    rest = emit(op.where(alone, x, rest))
    apart = emit(op.logical_xor(emit(op.less(rest, zero)), emit(op.less(y, zero))))
    apart = emit(op.logical_and(apart, emit(op.not_equal(rest, zero))))
    return emit(op.where(apart, emit(op.add(rest, y)), rest))


def _hyperbolic(*, sine: bool) -> Converter:
    return lambda node: hyperbolic(node.emit, node.operand(0), sine=sine)


def _parametric(node: Node) -> relax.Expr | None:
    """TVM's, but for bfloat16, of which it takes no slopes of several axes."""
    if node.dtype(0) != "bfloat16":
        return None
    emit, x = node.emit, node.operand(0)
    falling = emit(op.less(x, const(0.0, node.dtype(0))))
    return emit(op.where(falling, emit(op.multiply(x, node.operand(1))), x))


def _power(node: Node) -> relax.Expr | None:
    """With operands of two types: computed in the floating-point one, given as the first one's."""
    kinds = [node.dtype(0), node.dtype(1)]
    floats = [kind for kind in kinds if "float" in kind]
    if kinds[0] == kinds[1] and floats:
        return None
    # TVM raises no integers to a power; those below 2 ** 53 are exact.
    wide = max(floats, key=lambda kind: int(kind[-2:])) if floats else "float64"
    operands = [node.emit(op.astype(node.operand(i), wide)) for i in range(2)]
    raised = node.emit(op.power(*operands))
    if not floats:
        raised = node.emit(op.round(raised))
    return node.emit(op.astype(raised, kinds[0]))


def _exponential_unit(alpha: float, gamma: float) -> Converter:
    """Elu and Selu, whose constants are of the operand's type here."""

    def convert(node: Node) -> relax.Expr:
        emit, x, kind = node.emit, node.operand(0), node.dtype(0)
        a = const(node.number("alpha", alpha), kind)
        below = emit(op.subtract(emit(op.exp(x)), const(1.0, kind)))
        # Only where it is below zero: elsewhere an exponential may be infinite.
        below = emit(op.multiply(a, emit(op.minimum(below, const(0.0, kind)))))
        unit = emit(op.add(below, emit(op.nn.relu(x))))
        scale = node.number("gamma", gamma)
        return unit if scale == 1.0 else emit(op.multiply(const(scale, kind), unit))

    return convert


def _bit_cast(node: Node) -> relax.Expr | None:
    source = node.dtype(0)
    target = helper.tensor_dtype_to_np_dtype(node.integer("to", 1)).name
    if source == target:
        return node.operand(0)
    if "bool" in (source, target):
        raise Refused("bits of truth values")
    x = node.operand(0)

    def reinterpreted(tensor: te.Tensor) -> te.Tensor:
        return te.compute(
            tensor.shape, lambda *place: tirx.reinterpret(target, tensor(*place)), "bits"
        )

    return node.builder.emit_te(reinterpreted, x, primfunc_name_hint="bit_cast")


def _thresholded(node: Node) -> relax.Expr:
    """TVM's multiplies by truth values: what is infinite became none."""
    x, kind = node.operand(0), node.dtype(0)
    above = node.emit(op.greater(x, const(node.number("alpha", 1.0), kind)))
    return node.emit(op.where(above, x, const(0.0, kind)))


CONVERTERS: dict[str, Converter] = {
    "BitCast": _bit_cast,
    "Cosh": _hyperbolic(sine=False),
    "Elu": _exponential_unit(1.0, 1.0),
    "IsInf": _is_infinite,
    "Mod": _modulo,
    "Pow": _power,
    "Sinh": _hyperbolic(sine=True),
    "PRelu": _parametric,
    "ThresholdedRelu": _thresholded,
    "Selu": _exponential_unit(1.67326319217681884765625, 1.05070102214813232421875),
}
