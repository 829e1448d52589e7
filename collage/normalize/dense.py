"""Dense layers: ``matmul`` by a constant ``(K, N)``, scales in the weights, bias ``(N,)`` last."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from collage import rewrite as rw
from collage.backends.relax.static_shape import static_shape
from collage.rewrite import RESHAPES, Rules, Scope


def _weights(scope: Scope, expr: relax.Expr) -> tuple[relax.Call, np.ndarray] | None:
    """The ``matmul`` behind ``expr`` and its 2-D constant weights, when nothing else uses it."""
    call = scope.call(expr, "matmul")
    if call is None or not rw.is_constant(call.args[1]) or not scope.only_use(expr):
        return None
    weights = scope.digits.value(call.args[1])
    return None if weights is None or weights.ndim != 2 else (call, weights)


def _scale_into_weights(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``matmul(x, W) * s`` is ``matmul(x, W * s)`` for a scale per feature; so with a bias."""
    pair = rw.operand_pair(call)
    if pair is None or not rw.is_float(call) or static_shape(call) != static_shape(pair[0]):
        return None
    scale = scope.digits.value(pair[1])
    assert scale is not None
    if scale.size != 1 and scale.shape != static_shape(call)[-1:]:
        return None
    bias = scope.call(pair[0], "add")
    shift = (
        scope.digits.value(bias.args[1]) if bias is not None and scope.only_use(pair[0]) else None
    )
    if bias is not None and (shift is None or shift.shape != static_shape(call)[-1:]):
        return None
    found = _weights(scope, pair[0] if bias is None else bias.args[0])
    if found is None:
        return None
    matmul, weights = found
    dtype = rw.dtype_of(call)
    scale = scale.reshape(-1)
    product = relax.op.matmul(matmul.args[0], scope.digits.constant(weights * scale, dtype))
    if shift is None:
        return product
    return relax.op.add(scope.emit(product), scope.digits.constant(shift * scale, dtype))


def _scaled_operand(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``matmul(x * s, W)`` is ``matmul(x, s * W)``: the alpha of a Gemm."""
    product = scope.call(call.args[0], "multiply")
    weights = scope.digits.value(call.args[1])
    if product is None or weights is None or weights.ndim != 2 or not rw.is_float(call):
        return None
    scale = rw.scalar(product.args[1]) if rw.is_constant(product.args[1]) else None
    if scale is None or not scope.only_use(call.args[0]):
        return None
    if static_shape(product.args[0]) != static_shape(call.args[0]):
        return None
    scaled = scope.digits.constant(weights * scale, rw.dtype_of(call))
    return relax.op.matmul(product.args[0], scaled)


def _plain_weights(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Weights ``(1, ..., K, N)`` lose their leading unit dimensions."""
    weights = scope.digits.value(call.args[1])
    x = call.args[0]
    if weights is None or weights.ndim <= 2 or weights.shape[:-2] != (1,) * (weights.ndim - 2):
        return None
    if len(static_shape(x)) < weights.ndim:
        return None
    flat = scope.digits.constant(weights.reshape(weights.shape[-2:]), rw.dtype_of(call.args[1]))
    return relax.op.matmul(x, flat)


def _unflatten_dense(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``reshape(reshape(x, (-1, K)) @ W [+ b])`` back to the rows of ``x`` is ``x @ W [+ b]``.

    PyTorch exports dense layers on sequences so.
    """
    if not rw.is_tensor(call):
        return None
    bias = scope.call(call.args[0], "add")
    shift = scope.digits.value(bias.args[1]) if bias is not None else None
    if bias is not None and (shift is None or shift.shape != static_shape(call)[-1:]):
        return None
    matmul = scope.call(call.args[0] if bias is None else bias.args[0], "matmul")
    if (
        matmul is None
        or not rw.is_constant(matmul.args[1])
        or len(static_shape(matmul.args[1])) != 2
    ):
        return None
    flat = scope.call(matmul.args[0], *RESHAPES)
    if flat is None or not scope.only_use(call.args[0]):
        return None
    rows = static_shape(flat.args[0])
    features = static_shape(call)
    if rows[:-1] != features[:-1] or static_shape(flat)[-1:] != rows[-1:] or len(rows) < 2:
        return None
    if features[-1] != static_shape(matmul)[-1] or len(static_shape(flat)) != 2:
        return None
    product = relax.op.matmul(flat.args[0], matmul.args[1])
    return product if bias is None else relax.op.add(scope.emit(product), bias.args[1])


def _before_reshape(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``reshape(x @ W) * s`` and ``... + b``, by feature, stand before the reshape.

    There they go into the weights and are the layer's bias. A batch norm behind a dense layer on
    sequences (LeViT's) takes all rows of all samples as one axis.
    """
    pair = rw.operand_pair(call)
    if pair is None or not rw.is_float(call) or not scope.only_use(pair[0]):
        return None
    moved, features = scope.call(pair[0], "reshape"), static_shape(call)[-1:]
    if moved is None or static_shape(pair[1]) != features:
        return None
    y = moved.args[0]
    if static_shape(y)[-1:] != features or len(static_shape(y)) < 2 or not scope.only_use(y):
        return None
    bias = scope.call(y, "add")
    product = y if bias is None else bias.args[0]
    if bias is not None and (static_shape(bias.args[1]) != features or not scope.only_use(product)):
        return None
    if _weights(scope, product) is None:
        return None
    made = scope.emit(relax.Call(call.op, [y, pair[1]], call.attrs))
    return relax.op.reshape(made, static_shape(call))


def _unflatten_batches(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``reshape(reshape(a, (B, M, K)) @ reshape(b, (B, K, N)))`` is ``a @ b``.

    PyTorch joins the batch dimensions of attention so before each product.
    """
    matmul = scope.call(call.args[0], "matmul")
    if matmul is None or not rw.is_tensor(call) or not scope.only_use(call.args[0]):
        return None
    left, right = (scope.call(arg, *RESHAPES) for arg in matmul.args)
    if left is None or right is None or len(static_shape(call)) < 3:
        return None
    a, b = left.args[0], right.args[0]
    batch = static_shape(call)[:-2]
    same = all(
        static_shape(wide) == (*batch, *static_shape(flat)[-2:]) and len(static_shape(flat)) == 3
        for wide, flat in ((a, matmul.args[0]), (b, matmul.args[1]))
    )
    if not same or static_shape(call)[-2:] != static_shape(matmul)[-2:]:
        return None
    return relax.op.matmul(a, b)


def _sink_scale(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """A scalar scale moves up through reshapes, permutes and products to a dense layer's weights.

    Attention's ``1 / sqrt(d)`` then costs nothing at run time.
    """
    pair = rw.operand_pair(call)
    scale = rw.scalar(pair[1]) if pair is not None else None
    if pair is None or scale is None or not rw.is_float(call) or not scope.only_use(pair[0]):
        return None
    if not _ends_in_dense(scope, pair[0]):
        return None
    moved = scope.call(pair[0], "reshape", "permute_dims", "matmul")
    if moved is None or rw.is_constant(moved.args[-1]):
        return None
    scaled = scope.emit(relax.op.multiply(moved.args[0], pair[1]))
    return relax.Call(moved.op, [scaled, *moved.args[1:]], moved.attrs)


def _ends_in_dense(scope: Scope, expr: relax.Expr) -> bool:
    """Whether nothing but data movement stands between ``expr`` and a dense layer of its own."""
    while scope.only_use(expr):
        call = scope.call(expr, "reshape", "permute_dims", "matmul", "add")
        if call is None:
            return False
        if rw.op_name(call) == "matmul" and rw.is_constant(call.args[1]):
            return len(static_shape(call.args[1])) == 2
        if rw.op_name(call) == "add":
            bias = (
                rw.is_constant(call.args[1])
                and static_shape(call.args[1]) == static_shape(call)[-1:]
            )
            if not bias or not scope.comes_from(call.args[0], "matmul"):
                return False
        expr = call.args[0]
    return False


def _implied_type(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """An output type that is the operands' own is left out of the attributes."""
    wanted = call.attrs.out_dtype
    if not wanted or not all(rw.is_tensor(arg) for arg in call.args):
        return None
    if any(rw.dtype_of(arg) != rw.dtype_of(call) for arg in call.args):
        return None
    return rw.with_attrs(call, out_dtype=None)


def _joint_scale(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Attention's ``q * sqrt(s)`` and ``k * sqrt(s)`` become one scale of their product."""
    left, right = (scope.call(arg, "multiply") for arg in call.args)
    if left is None or right is None or not rw.is_float(call):
        return None
    scales = [rw.scalar(m.args[1]) if rw.is_constant(m.args[1]) else None for m in (left, right)]
    if scales[0] is None or scales[1] is None:
        return None
    if not all(scope.only_use(arg) for arg in call.args):
        return None
    scale = scales[0] * scales[1]
    if not math.isfinite(scale):
        return None
    product = scope.emit(relax.op.matmul(left.args[0], right.args[0]))
    return relax.op.multiply(product, scope.digits.constant(scale, rw.dtype_of(call)))


RULES: Rules = {
    "matmul": (_implied_type, _plain_weights, _scaled_operand, _joint_scale),
    "add": (_before_reshape,),
    "multiply": (_scale_into_weights, _before_reshape, _sink_scale),
    "reshape": (_unflatten_dense, _unflatten_batches),
    **dict.fromkeys(
        (f"nn.conv{rank}d{kind}" for rank in (1, 2, 3) for kind in ("", "_transpose")),
        (_implied_type,),
    ),
}
