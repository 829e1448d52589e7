"""Bounds: ``maximum`` and ``minimum`` by constants become ``clip`` or ``nn.relu``.

Hard-sigmoid has one form, ``clip(x * a + b, 0, 1)``, and hard-swish is ``x`` times that.
"""

from __future__ import annotations

import math

import numpy as np
import tvm
from tvm import relax

from collage import rewrite as rw
from collage.backends.relax.static_shape import static_shape
from collage.rewrite import Rules, Scope


def _clip(x: relax.Expr, low: float, high: float) -> relax.Expr:
    """``clip`` with bounds as floating-point immediates; NaN and infinite bounds do not bound."""
    low = -math.inf if math.isnan(low) else low
    high = math.inf if math.isnan(high) else high
    if low == 0.0 and high == math.inf:
        return relax.op.nn.relu(x)
    if low == -math.inf and high == math.inf:
        return x
    if high == math.inf:
        return relax.op.maximum(x, rw.make_constant(low, rw.dtype_of(x)))
    if low == -math.inf:
        return relax.op.minimum(x, rw.make_constant(high, rw.dtype_of(x)))
    return relax.op.clip(x, float(low), float(high))


def _bounds(scope: Scope, expr: relax.Expr) -> tuple[relax.Expr, float, float] | None:
    """(x, low, high) when ``expr`` is ``x`` limited to an interval."""
    call = scope.call(expr, "clip", "nn.relu", "nn.relu6", "maximum", "minimum")
    if call is None or not rw.is_tensor(call) or not rw.is_float(call):
        return None
    x = call.args[0]
    name = rw.op_name(call)
    if name == "nn.relu":
        return x, 0.0, math.inf
    if name == "nn.relu6":
        return x, 0.0, 6.0
    limits = [rw.scalar(arg) for arg in call.args[1:]]
    if static_shape(x) != static_shape(call) or any(v is None for v in limits):
        return None
    values = [float(v) for v in limits if v is not None]
    if name == "clip":
        # Where bounds cross, ONNX, PyTorch and numpy give the upper one, and TVM the lower.
        return x, min(values), values[1]
    return (x, values[0], math.inf) if name == "maximum" else (x, -math.inf, values[0])


def _merge_bounds(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """One bounding operator in its canonical form, taken together with one before it."""
    found = _bounds(scope, call)
    if found is None:
        return None
    x, low, high = found
    if math.isnan(low) or math.isnan(high):
        return _clip(x, low, high)
    inner = _bounds(scope, x) if scope.only_use(x) else None
    if inner is not None:
        low, high = (min(max(v, low), high) for v in inner[1:])
        return _clip(inner[0], low, high)
    made = _clip(x, low, high)
    if rw.op_name(made) != rw.op_name(call):
        return made
    is_made = all(isinstance(a, tvm.tirx.FloatImm) for a in call.args[1:])
    if rw.op_name(call) != "clip" or (is_made and float(call.args[1].value) <= high):
        return None
    return made


def _hard_swish(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``x * clip(x + 3, 0, 6) * (1/6)``, in any order of factors, is ``x * hard_sigmoid(x)``.

    What is added may be a channel's bias that the 3 is part of already. Scaled before it is
    clipped, it is scaled with the weights before it. What is scaled behind is off by what 1/6 was
    rounded, each element alike, which no sum averages out, and the bias by what 3 leaves of its
    digits: a network of gates came out twice as inexact as in PyTorch.
    """
    scale, terms = factors(scope, call)
    if scale == 1.0 or len(terms) > 2:
        return None
    for index, term in enumerate(terms):
        found = _bounds(scope, term)
        if found is None or not np.allclose([found[1] * scale, found[2] * scale], [0, 1]):
            continue
        affine = _affine(scope, found[0])
        if affine is None:
            continue
        x, slope, offset = affine
        if offset.size > 1 and not scope.only_use(found[0]):
            continue
        dtype = rw.dtype_of(call)
        line = relax.op.multiply(x, scope.digits.constant(np.float64(slope * scale), dtype))
        line = relax.op.add(scope.emit(line), scope.digits.constant(offset * scale, dtype))
        gate = scope.emit(relax.op.clip(scope.emit(line), 0.0, 1.0))
        others = terms[:index] + terms[index + 1 :]
        return relax.op.multiply(others[0], gate) if others else gate
    return None


def factors(scope: Scope, expr: relax.Expr) -> tuple[float, list[relax.Expr]]:
    """A product taken apart: the product of its scalar constants, and the other factors.

    Only intermediate products without another user are taken apart.

    Parameters
    ----------
    scope : Scope
        Where the expression stands.
    expr : relax.Expr
        Anything; what is no product is its own only factor.

    Returns
    -------
    tuple[float, list[relax.Expr]]
        1.0 and the expression alone where it is no product.
    """
    call = expr if isinstance(expr, relax.Call) else scope.call(expr, "multiply")
    if call is None or rw.op_name(call) != "multiply":
        return 1.0, [expr]
    scale, terms = 1.0, []
    for arg in call.args:
        value = scope.digits.value(arg)
        if value is not None and value.size == 1:
            scale *= float(value.reshape(()))
        elif scope.only_use(arg) and scope.comes_from(arg, "multiply"):
            inner_scale, inner_terms = factors(scope, arg)
            scale *= inner_scale
            terms += inner_terms
        else:
            terms.append(arg)
    return scale, terms


def _affine(scope: Scope, expr: relax.Expr) -> tuple[relax.Expr, float, np.ndarray] | None:
    """(x, a, b) when ``expr`` is ``x * a + b`` with constants ``a``, a number, and ``b``."""
    call = scope.call(expr, "add")
    offset = scope.digits.value(call.args[1]) if call is not None else None
    if call is None or offset is None or static_shape(call.args[0]) != static_shape(call):
        return None
    offset = offset.astype(np.float64)
    product = scope.call(call.args[0], "multiply")
    slope = scope.digits.value(product.args[1]) if product is not None else None
    if product is None or slope is None or slope.size != 1:
        return call.args[0], 1.0, offset
    return product.args[0], float(slope.reshape(())), offset


def _leaky_relu(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``where(x < 0, a * x, x)`` is a leaky ReLU; with a slope per channel a PReLU."""
    condition = scope.call(call.args[0], "less", "greater", "less_equal", "greater_equal")
    if condition is None or rw.scalar(condition.args[1]) != 0.0:
        return None
    x = condition.args[0]
    negative, positive = call.args[1], call.args[2]
    if rw.op_name(condition).startswith("greater"):
        negative, positive = positive, negative
    product = scope.call(negative, "multiply")
    if product is None or not positive.same_as(x) or not product.args[0].same_as(x):
        return None
    slopes = rw.constant(product.args[1])
    shape = static_shape(x)
    if slopes is None or static_shape(call) != shape or slopes.ndim > len(shape):
        return None
    if slopes.size == 1:
        return relax.op.nn.leakyrelu(x, float(slopes.reshape(())))
    wide = [len(shape) - slopes.ndim + axis for axis, n in enumerate(slopes.shape) if n != 1]
    # TVM's operator takes no bfloat16.
    if len(wide) > 1 or rw.dtype_of(x) == "bfloat16":
        return None
    return relax.op.nn.prelu(x, rw.make_constant(slopes.reshape(-1), rw.dtype_of(x)), axis=wide[0])


RULES: Rules = {
    "clip": (_merge_bounds,),
    "nn.relu": (_merge_bounds,),
    "nn.relu6": (_merge_bounds,),
    "maximum": (_merge_bounds,),
    "minimum": (_merge_bounds,),
    "multiply": (_hard_swish,),
    "where": (_leaky_relu,),
}
