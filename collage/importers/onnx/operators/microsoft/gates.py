"""onnxruntime's operators that are a few elementwise ones in a row: gates, and norms with gates."""

from __future__ import annotations

import math

from tvm import relax
from tvm.relax import op

from collage.importers.onnx.operators.microsoft.optimized import activated, fused_matmul
from collage.importers.onnx.operators.node import Node, Refused, const, shape_of


def _wide(node: Node, index: int) -> relax.Expr:
    """An input in the element type that these compute in."""
    return node.emit(op.astype(node.operand(index), "float32"))


def _narrow(node: Node, x: relax.Expr) -> relax.Expr:
    return node.emit(op.astype(x, node.dtype(0)))


def _root_mean_square(node: Node, x: relax.Expr, epsilon: float) -> relax.Expr:
    """Rows over the root of their mean square."""
    emit = node.emit
    square = emit(op.mean(emit(op.multiply(x, x)), [-1], keepdims=True))
    return emit(op.multiply(x, emit(op.rsqrt(emit(op.add(square, const(epsilon, "float32")))))))


def _gated_norm(node: Node) -> relax.Expr:
    """Inputs: rows of one or several groups, a scale for each element of a group, a gate."""
    emit, shape, size = node.emit, node.shape(0), node.shape(1)[0]
    groups = emit(op.reshape(_wide(node, 0), [*shape[:-1], shape[-1] // size, size]))
    normed = _root_mean_square(node, groups, node.number("epsilon", 1e-6))
    normed = emit(op.reshape(emit(op.multiply(normed, _wide(node, 1))), shape))
    gate, kind = _wide(node, 2), node.text("activation", "silu")
    if kind not in ("silu", "swish", "sigmoid"):
        raise Refused(f"the activation '{kind}'")
    opened = emit(op.sigmoid(gate) if kind == "sigmoid" else op.nn.silu(gate))
    return _narrow(node, emit(op.multiply(normed, opened)))


def _norms_of_branches(node: Node) -> relax.Expr:
    """Each branch over the root of its own mean square; branches have an axis, or lie in one."""
    emit, shape = node.emit, node.shape(0)
    count = node.integer("num_branches", 0)
    size = shape[-1] // count if count else shape[-1]
    grouped = [*shape[:-1], count, size] if count else shape
    normed = emit(op.reshape(_wide(node, 0), grouped))
    normed = _root_mean_square(node, normed, node.number("epsilon", 1e-5))
    if node.has(1):
        alike = node.shape(1) == [size]
        scale = emit(op.reshape(_wide(node, 1), [size] if alike else grouped[-2:]))
        normed = emit(op.multiply(normed, scale))
    return _narrow(node, emit(op.reshape(normed, shape)))


def _gated_sum(node: Node) -> relax.Expr:
    if node.has(3):
        raise Refused("a gate that is projected, which onnxruntime has on a GPU alone")
    return node.emit(
        op.add(node.operand(0), node.emit(op.multiply(node.operand(1), node.operand(2))))
    )


def _scaled_silu(node: Node) -> relax.Expr:
    emit = node.emit
    scale = const(node.number("alpha", 1.0), "float32")
    if node.has(1):
        scale = emit(op.reshape(_wide(node, 1), []))
    return emit(op.nn.silu(_narrow(node, emit(op.multiply(_wide(node, 0), scale)))))


def _swiglu(node: Node) -> relax.Expr:
    """Inputs: a gate and what goes through it, or both side by side in one."""
    emit, limit = node.emit, node.number("limit", 0.0)
    if node.has(1):
        gate, up = _wide(node, 0), _wide(node, 1)
    else:
        halves = emit(op.split(_wide(node, 0), 2, -1))
        gate, up = (emit(relax.TupleGetItem(halves, i)) for i in (0, 1))
    if limit > 0:
        gate = emit(op.minimum(gate, const(limit, "float32")))
        up = emit(op.clip(up, -limit, limit))
    sharp = emit(op.multiply(gate, const(node.number("activation_alpha", 1.0), "float32")))
    opened = emit(op.multiply(gate, emit(op.sigmoid(sharp))))
    if node.integer("round_activation", 0):
        opened = emit(op.astype(_narrow(node, opened), "float32"))
    up = emit(op.add(up, const(node.number("activation_beta", 0.0), "float32")))
    return _narrow(node, emit(op.multiply(opened, up)))


def _gates_of_linear_attention(node: Node) -> relax.Expr:
    """How much of a state stays, and how much of a row is new."""
    emit = node.emit
    moved = emit(op.add(_wide(node, 0), node.operand(1)))
    decay = _narrow(node, emit(op.multiply(emit(op.nn.softplus(moved)), node.operand(2))))
    if node.outputs == 1:
        return decay
    return relax.Tuple([decay, _narrow(node, emit(op.sigmoid(_wide(node, 3))))])


def _biased_softmax(node: Node) -> relax.Expr:
    """Over all axes from one on, which are one axis."""
    emit, shape = node.emit, node.shape(0)
    axis = node.integer("axis", 1) % len(shape)
    total = emit(op.add(node.operand(0), node.operand(1)))
    if shape_of(total) != shape:
        raise Refused(f"a bias of shape {tuple(node.shape(1))} for {tuple(shape)}")
    flat = emit(op.reshape(total, [*shape[:axis], math.prod(shape[axis:])]))
    return emit(op.reshape(emit(op.nn.softmax(flat, -1)), shape))


def _activated_product(node: Node) -> relax.Expr:
    names = [f"activation_{which}" for which in ("alpha", "beta", "gamma")]
    given = [node.number(name, 0.0) for name in names if name in node.attributes]
    product = fused_matmul(node)
    if node.text("activation", "").lower() == "softmax":
        return node.emit(op.nn.softmax(product, node.integer("activation_axis", -1)))
    return activated(node, product, given)


MICROSOFT = {
    "BiasSoftmax": _biased_softmax,
    "BranchwiseRMSNorm": _norms_of_branches,
    "FusedMatMulActivation": _activated_product,
    "GatedAdd": _gated_sum,
    "GatedRMSNorm": _gated_norm,
    "LinearAttentionGate": _gates_of_linear_attention,
    "ScaledSiLU": _scaled_silu,
    "SwiGLU": _swiglu,
}
