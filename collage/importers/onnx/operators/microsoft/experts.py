"""Mixtures of experts as onnxruntime has them: every expert is computed, and those chosen weighed.

What a row's best experts are is known only as the model runs, so all have to be there; that costs
as many times more as there are experts for each that is chosen.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax
from tvm.relax import op

from collage.importers.onnx.operators.node import Node, Refused, const, dtype_of, shape_of


def mixture(node: Node) -> relax.Expr:
    """Of a node with the inputs of ``MoE``.

    Raises
    ------
    Refused
        For a mixer, a limit or an activation that has no definition here.
    """
    if node.integer("use_sparse_mixer", 0) or node.integer("swiglu_limit_after_activation", 0):
        raise Refused("a sparse mixer, or a limit behind the activation")
    emit, shape, kind = node.emit, node.shape(0), node.dtype(0)
    x = emit(op.reshape(node.operand(0), [1, -1, shape[-1]]))
    inner = _activated(node, _layer(node, x, 2, 3), x)
    found = _layer(node, inner, 4, 5)
    # (rows, experts) as (experts, rows, 1)
    shares = emit(op.permute_dims(_shares(node), [1, 0]))
    weighed = emit(op.multiply(found, emit(op.expand_dims(shares, 2))))
    return emit(op.astype(emit(op.reshape(emit(op.sum(weighed, [0])), shape)), kind))


def _layer(node: Node, x: relax.Expr, weight: int, bias: int) -> relax.Expr:
    """Of each expert: ``x @ W.T + b``."""
    turned = node.emit(op.permute_dims(node.operand(weight), [0, 2, 1]))
    found = node.emit(op.matmul(x, turned))
    if not node.has(bias):
        return found
    return node.emit(op.add(found, node.emit(op.expand_dims(node.operand(bias), 1))))


def _shares(node: Node) -> relax.Expr:
    """How much each expert counts for each row; nothing where others are better."""
    emit, most = node.emit, node.integer("k", 1)
    logits = node.operand(1)
    rows, experts = node.shape(1)
    kind = node.dtype(1)
    shares = emit(op.nn.softmax(logits, -1))
    best = emit(op.topk(logits, most, 1, ret_type="indices", dtype="int64"))
    numbers = emit(op.reshape(op.arange(0, experts, 1, "int64"), [1, 1, experts]))
    hit = emit(op.equal(emit(op.reshape(best, [rows, most, 1])), numbers))
    chosen = emit(op.sum(emit(op.astype(hit, kind)), [1]))
    shares = emit(op.multiply(shares, chosen))
    if node.integer("normalize_routing_weights", 0):
        shares = emit(op.divide(shares, emit(op.sum(shares, [1], keepdims=True))))
    return shares


def _activated(node: Node, x: relax.Expr, given: relax.Expr) -> relax.Expr:
    name, emit = node.text("activation_type", "relu"), node.emit
    if name == "swiglu":
        gate, line = _halves(node, x, given)
        return _swish_gated(node, gate, line)
    if name not in _ACTIVATIONS:
        raise Refused(f"the activation '{name}' is not in the definition")
    found = emit(_ACTIVATIONS[name](x))
    return emit(op.multiply(found, _layer(node, given, 6, 7))) if node.has(6) else found


_ACTIVATIONS: dict[str, Callable[[relax.Expr], relax.Expr]] = {
    "relu": op.nn.relu,
    "gelu": op.nn.gelu_tanh,
    "silu": op.nn.silu,
    "identity": lambda x: x,
}


def _halves(node: Node, x: relax.Expr, given: relax.Expr) -> tuple[relax.Expr, relax.Expr]:
    """What gates, and what is gated: from one product, in turns or one behind the other, or two."""
    emit, fused = node.emit, node.integer("swiglu_fusion", 0)
    if not fused:
        return x, _layer(node, given, 6, 7)
    *lead, width = shape_of(x)
    axis = len(lead) + (1 if fused == 1 else 0)
    split = emit(op.reshape(x, [*lead, width // 2, 2] if fused == 1 else [*lead, 2, width // 2]))
    one, two = (
        emit(op.squeeze(emit(op.strided_slice(split, [axis], [i], [i + 1])), [axis]))
        for i in range(2)
    )
    return one, two


def _swish_gated(node: Node, gate: relax.Expr, line: relax.Expr) -> relax.Expr:
    emit, kind = node.emit, dtype_of(gate)
    alpha, beta = node.number("activation_alpha", 1.0), node.number("activation_beta", 0.0)
    if "swiglu_limit" in node.attributes:
        limit = node.number("swiglu_limit", 0.0)
        gate = emit(op.minimum(gate, const(limit, kind)))
        line = emit(op.clip(line, -limit, limit))
    open_by = emit(op.sigmoid(emit(op.multiply(gate, const(alpha, kind)))))
    return emit(op.multiply(emit(op.multiply(gate, open_by)), op.add(line, const(beta, kind))))


MICROSOFT = {"MoE": mixture}
