"""Chains that exporters write out for GELU, SiLU and their like become one operator.

A chain is compared as mathematics, not as a tree: products are taken apart into factors, sums of
powers are read as a polynomial. So every order of operands and every place of the 0.5 is the same.
"""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from collage.normalize.clipping import factors
from collage.rewrite import (
    Rules,
    Scope,
    constant,
    is_constant,
    is_float,
    is_tensor,
    op_name,
    scalar,
)

_Polynomial = dict[int, float]
"""Coefficient by degree."""

_TOLERANCE = 1e-3
"""Exporters write constants like 0.044715 and 1.702 with few digits."""

_ERF_GELU: _Polynomial = {1: 1 / math.sqrt(2)}
_TANH_GELU: _Polynomial = {1: math.sqrt(2 / math.pi), 3: math.sqrt(2 / math.pi) * 0.044715}


def _polynomial(
    scope: Scope, expr: relax.Expr, x: relax.Expr, depth: int = 8
) -> _Polynomial | None:
    """Read ``expr`` as a polynomial in ``x`` of degree up to 3; None when it is none."""
    if expr.same_as(x):
        return {1: 1.0}
    value = scalar(expr) if is_constant(expr) else None
    if value is not None:
        return {0: value}
    call = scope.call(expr, "add", "multiply", "power")
    if call is None or depth == 0:
        return None
    left = _polynomial(scope, call.args[0], x, depth - 1)
    right = _polynomial(scope, call.args[1], x, depth - 1)
    if left is None or right is None:
        return None
    if op_name(call) == "add":
        return {d: left.get(d, 0.0) + right.get(d, 0.0) for d in left.keys() | right.keys()}
    if op_name(call) == "power":
        cube = right == {0: 3.0} and left == {1: 1.0}
        return {3: 1.0} if cube else None
    product: _Polynomial = {}
    for a, p in left.items():
        for b, q in right.items():
            product[a + b] = product.get(a + b, 0.0) + p * q
    return product if max(product) <= 3 else None


def _is_close(found: _Polynomial | None, wanted: _Polynomial) -> bool:
    if found is None:
        return False
    degrees = found.keys() | wanted.keys()
    return all(
        math.isclose(found.get(d, 0.0), wanted.get(d, 0.0), rel_tol=_TOLERANCE, abs_tol=1e-9)
        for d in degrees
    )


def _gelu(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``0.5 * x * (1 + erf(x / sqrt(2)))``, or its tanh approximation, is GELU."""
    if not is_tensor(call) or not is_float(call):
        return None
    scale, terms = factors(scope, call)
    if len(terms) != 2 or not math.isclose(scale, 0.5, rel_tol=_TOLERANCE):
        return None
    for x, gate in (terms, terms[::-1]):
        inner = _one_plus(scope, gate)
        call_inner = scope.call(inner, "erf", "tanh") if inner is not None else None
        if call_inner is None:
            continue
        found = _polynomial(scope, call_inner.args[0], x)
        if op_name(call_inner) == "erf" and _is_close(found, _ERF_GELU):
            return relax.op.nn.gelu(x)
        if op_name(call_inner) == "tanh" and _is_close(found, _TANH_GELU):
            return relax.op.nn.gelu_tanh(x)
    return None


def _one_plus(scope: Scope, expr: relax.Expr) -> relax.Expr | None:
    """``y`` when ``expr`` is ``y + 1``."""
    call = scope.call(expr, "add")
    if call is None or not is_constant(call.args[1]) or scalar(call.args[1]) != 1.0:
        return None
    return call.args[0]


def _silu(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``x * sigmoid(x)`` is SiLU (Swish)."""
    for x, gate in (call.args, call.args[::-1]):
        inner = scope.call(gate, "sigmoid")
        if inner is not None and inner.args[0].same_as(x):
            return relax.op.nn.silu(x)
    return None


def _logistic(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``1 / (1 + exp(-x))`` is the sigmoid."""
    if not is_constant(call.args[0]) or scalar(call.args[0]) != 1.0 or not is_tensor(call):
        return None
    inner = _one_plus(scope, call.args[1])
    exponential = scope.call(inner, "exp") if inner is not None else None
    negative = scope.call(exponential.args[0], "negative") if exponential is not None else None
    return relax.op.sigmoid(negative.args[0]) if negative is not None else None


def _softplus(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``log(exp(x) + 1)`` is softplus."""
    inner = _one_plus(scope, call.args[0])
    exponential = scope.call(inner, "exp") if inner is not None else None
    return relax.op.nn.softplus(exponential.args[0]) if exponential is not None else None


_SAME_AS_SOFTPLUS = 17.0
"""From here on log(1 + exp(x)) is x to the last digit of float32."""


def _unneeded_softplus_guard(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``where(b * x > 20, x, softplus(b * x) / b)`` is that softplus, which is x from there on.

    So PyTorch's exporter writes it, that powers stay finite; the operator sees to that by itself.
    """
    check, bound = scope.call(call.args[0], "greater"), None
    if check is not None and is_constant(check.args[1]):
        bound = scalar(check.args[1])
    soft = scope.call(call.args[2], "nn.softplus", "multiply")
    if check is None or bound is None or bound < _SAME_AS_SOFTPLUS or soft is None:
        return None
    x, beta = call.args[1], 1.0
    if op_name(soft) == "multiply":
        inverse = scalar(soft.args[1]) if is_constant(soft.args[1]) else None
        inner = scope.call(soft.args[0], "nn.softplus")
        scaled = scope.call(check.args[0], "multiply")
        if inner is None or scaled is None or not scaled.args[0].same_as(x):
            return None
        found = scalar(scaled.args[1]) if is_constant(scaled.args[1]) else None
        if found is None or inverse is None or not found > 0:
            return None
        if not math.isclose(found * inverse, 1.0, rel_tol=1e-6):
            return None
        soft, beta = inner, found
    same = soft.args[0].same_as(check.args[0]) and (beta != 1.0 or soft.args[0].same_as(x))
    plain = soft.attrs.beta == 1.0 and soft.attrs.threshold >= _SAME_AS_SOFTPLUS
    return relax.op.nn.softplus(x, beta=beta, threshold=bound) if same and plain else None


def _written_out_softmax(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``exp(x - max(x)) / sum(exp(x - max(x)))`` over one axis is softmax."""
    total = scope.call(call.args[1], "sum")
    if total is None or not total.args[0].same_as(call.args[0]) or not total.attrs.keepdims:
        return None
    exponential = scope.call(call.args[0], "exp")
    axes = total.attrs.axis
    if exponential is None or axes is None or len(axes) != 1:
        return None
    x = exponential.args[0]
    shifted = scope.call(x, "subtract")
    if shifted is not None:
        largest = scope.call(shifted.args[1], "max")
        along = largest.attrs.axis if largest is not None else None
        if along is not None and [int(a) for a in along] == [int(axes[0])]:
            x = shifted.args[0]
    return relax.op.nn.softmax(x, axis=int(axes[0]))


def _unneeded_nan_guard(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``where(isnan(p), 0, p)`` after a softmax that has no row of ``-inf`` is ``p``.

    PyTorch guards masked attention so against rows that are masked as a whole. The guard stays
    where the mask is an input: then a user may mask a row.
    """
    check = scope.call(call.args[0], "isnan")
    p = call.args[2]
    softmax = scope.call(p, "nn.softmax")
    if check is None or softmax is None or not check.args[0].same_as(p):
        return None
    axis = int(softmax.attrs.axis)
    return p if not _may_mask_a_row(scope, softmax.args[0], axis) else None


def _unneeded_mask_guard(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``where(not any(x != -inf), 0, softmax(x))``, another spelling of the same guard."""
    softmax = scope.call(call.args[2], "nn.softmax")
    if softmax is None or scalar(call.args[1]) != 0.0:
        return None
    condition = scope.definition(call.args[0])
    while op_name(condition) in ("logical_not", "astype", "max"):
        condition = scope.definition(condition.args[0])
    if op_name(condition) != "equal" or not condition.args[0].same_as(softmax.args[0]):
        return None
    masked = is_constant(condition.args[1]) and scalar(condition.args[1]) == -math.inf
    may = _may_mask_a_row(scope, softmax.args[0], int(softmax.attrs.axis))
    return call.args[2] if masked and not may else None


_MOVED = ("reshape", "broadcast_to", "expand_dims", "squeeze", "permute_dims", "astype")


def _may_mask_a_row(scope: Scope, expr: relax.Expr, axis: int) -> bool:
    """Whether ``expr`` can be ``-inf`` along the whole axis for finite activations."""
    value = constant(expr)
    if value is not None:
        masked = np.isneginf(value) if value.dtype.kind == "f" else np.zeros(value.shape, bool)
        return bool(np.any(np.all(masked, axis=axis) if masked.ndim else masked))
    inner = scope.definition(expr)
    while op_name(inner) in _MOVED:
        inner = scope.definition(inner.args[0])
    if isinstance(inner, relax.Var):
        return True  # An input: a mask, or scores that were masked outside.
    if op_name(inner) not in ("add", "multiply", "where"):
        return False
    if op_name(inner) == "where":
        return any(_holds_infinity(branch) for branch in inner.args[1:])
    return any(_may_mask_a_row(scope, arg, axis) for arg in inner.args)


def _holds_infinity(expr: relax.Expr) -> bool:
    value = constant(expr)
    return value is None or bool(np.any(np.isinf(value)))


RULES: Rules = {
    "multiply": (_gelu, _silu),
    "divide": (_logistic, _written_out_softmax),
    "log": (_softplus,),
    "where": (_unneeded_nan_guard, _unneeded_mask_guard, _unneeded_softplus_guard),
}
