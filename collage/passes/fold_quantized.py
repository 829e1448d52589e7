"""Quantized networks for devices whose libraries want no integers between operators.

Products of values that were rounded to fixed steps become one operator, as those of values rounded
over their own range are by normalization. All other integers that stand for weights become what
they stand for. What is rounded on its way from operator to operator stays as it is; where bytes are
pooled or take another shape, what they stand for is.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from collage import rewrite as rw
from collage.backends.relax.static_shape import static_shape
from collage.backends.relax.stepped import Steps, is_product, stepped_matmul
from collage.rewrite import Rules, Scope, apply_rules, op_name

__all__ = ["fold_quantized"]


def _product(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``matmul(dequantize(quantize(x)), dequantize(weights))``, the weights perhaps transposed."""
    rounded = _rounded(scope, call.args[0])
    weights, turned = scope.call(call.args[1], "dequantize"), False
    if weights is None:
        permuted = scope.call(call.args[1], "permute_dims")
        weights = scope.call(permuted.args[0], "dequantize") if permuted is not None else None
        turned = True
    if rounded is None or weights is None or rw.dtype_of(call) != "float32":
        return None
    x, steps = rounded
    values, scales, zeros = (rw.constant(arg) for arg in weights.args)
    if values is None or scales is None or zeros is None or values.ndim != 2:
        return None
    axis = int(weights.attrs.axis) % 2
    if max(scales.size, zeros.size) > 1 and axis != (0 if turned else 1):
        return None
    along = (-1, 1) if axis == 0 else (1, -1)
    whole = values.astype(np.int32) - zeros.astype(np.int32).reshape(along)
    if turned:
        whole = np.ascontiguousarray(whole.T)
    if not is_product(whole, static_shape(x)):
        return None
    made = stepped_matmul(x, whole, scales.reshape(-1).astype(np.float32), steps)
    return made if static_shape(scope.typed(made)) == static_shape(call) else None


def _rounded(scope: Scope, expr: relax.Expr) -> tuple[relax.Expr, Steps] | None:
    """What was rounded to bytes and taken for what they stand for, and to which steps."""
    back = scope.call(expr, "dequantize")
    there = scope.call(back.args[0], "quantize") if back is not None else None
    if back is None or there is None or not rw.is_tensor(there.args[0]):
        return None
    pairs = [
        (rw.constant(a), rw.constant(b)) for a, b in zip(back.args[1:], there.args[1:], strict=True)
    ]
    if any(a is None or b is None or a.size != 1 or not np.array_equal(a, b) for a, b in pairs):
        return None
    kind = rw.dtype_of(there)
    if kind not in ("int8", "uint8") or rw.dtype_of(there.args[0]) != "float32":
        return None
    step, point = (float(a.reshape(())) for a, _ in pairs if a is not None)
    return there.args[0], Steps(step, int(point) + (128 if kind == "int8" else 0))


def _weights(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``dequantize`` of a constant."""
    values, scales, zeros = (rw.constant(arg) for arg in call.args)
    if values is None or scales is None or zeros is None or rw.dtype_of(call) != "float32":
        return None
    shape = [1] * values.ndim
    if max(scales.size, zeros.size) > 1:
        shape[int(call.attrs.axis) % values.ndim] = -1
    whole = values.astype(np.int64) - zeros.astype(np.int64).reshape(shape)
    return rw.make_constant(whole.astype(np.float32) * scales.reshape(shape), "float32")


def _behind_pool(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``dequantize(max_pool(x))``: the largest byte stands for the largest number."""
    pool = scope.call(call.args[0], *_POOLS)
    if pool is None or not _one_for_all(call):
        return None
    real = scope.emit(relax.Call(call.op, [pool.args[0], *call.args[1:]], call.attrs, []))
    return relax.Call(pool.op, [real], pool.attrs, [])


def _before_rounding(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``dequantize(reshape(quantize(x)))``: another shape changes no number."""
    moved = scope.call(call.args[0], *_MOVING)
    there = scope.call(moved.args[0], "quantize") if moved is not None else None
    if moved is None or there is None or not (_one_for_all(call) and _one_for_all(there)):
        return None
    x = scope.emit(relax.Call(moved.op, [there.args[0], *moved.args[1:]], moved.attrs, []))
    kind = str(there.attrs.out_dtype)
    last = len(static_shape(x)) - 1
    again = scope.emit(op.quantize(x, *there.args[1:], axis=last, out_dtype=kind))
    return op.dequantize(again, *call.args[1:], axis=last)


def _one_for_all(call: relax.Call) -> bool:
    """Whether all elements have the same steps."""
    values = [rw.constant(arg) for arg in call.args[1:3]]
    return all(value is not None and value.size == 1 for value in values)


_POOLS = tuple(f"nn.max_pool{rank}d" for rank in (1, 2, 3))
_MOVING = ("reshape", "permute_dims", "squeeze", "expand_dims", "flatten")
_MOVES: Rules = {"dequantize": (_behind_pool, _before_rounding)}
_PRODUCTS: Rules = {"matmul": (_product,)}
_CONSTANTS: Rules = {"dequantize": (_weights,)}


def fold_quantized(mod: tvm.IRModule) -> tvm.IRModule:
    """Make products of bytes operators, and weights float32.

    Returns
    -------
    tvm.IRModule
        To be normalized again. ``mod`` itself where it has nothing quantized.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.testing import graph
    >>> weights = relax.const(np.ones((8, 4), np.int8))
    >>> step, zero = relax.const(np.float32(0.5)), relax.const(np.int8(0))
    >>> def layer(emit, x):
    ...     there = emit(op.quantize(x, step, zero, axis=-1, out_dtype="int8"))
    ...     back = emit(op.dequantize(there, step, zero, axis=-1))
    ...     return op.matmul(back, emit(op.dequantize(weights, step, zero, axis=-1)))
    >>> mod = fold_quantized(graph([(2, 8)], layer))
    >>> op_name(mod["main"].body.blocks[0].bindings[-1].value)
    'collage.stepped_matmul'
    """
    values = (b.value for block in mod["main"].body.blocks for b in block.bindings)
    if all(op_name(value) != "dequantize" for value in values):
        return mod
    return apply_rules(apply_rules(apply_rules(mod, _MOVES), _PRODUCTS), _CONSTANTS)
