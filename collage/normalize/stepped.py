"""Products of 8-bit integers that stand for rounded values become one operator of float32.

A dynamically quantized layer is a chain of twenty operators: the range of its input, the integers,
their sums, what these are multiplied by. It comes before all other families, which know nothing of
it and would change the chain.
"""

from __future__ import annotations

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from collage import rewrite as rw
from collage.backends.relax.static_shape import static_shape
from collage.backends.relax.stepped import NAME, in_steps, is_product, stepped_matmul
from collage.rewrite import Rules, Scope


def _product(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``float(integers @ weights) * (step * scales)``, integers and step of the same values."""
    for total, factor in (call.args, call.args[::-1]):
        sums = _cast(scope, total, "float32")
        product = scope.call(sums, "matmul") if sums is not None else None
        if product is None or rw.dtype_of(product) != "int32":
            continue
        step, scales = _step_and_scales(scope, factor)
        weights, x = rw.constant(product.args[1]), _rounded(scope, product.args[0], step)
        if weights is None or x is None or not rw.is_tensor(x):
            return None
        columns = weights.shape[-1]
        if not is_product(weights, static_shape(x)) or scales.size not in (1, columns):
            return None
        made = stepped_matmul(x, weights, scales.reshape(-1))
        return made if static_shape(scope.typed(made)) == static_shape(call) else None
    return None


def _scaled(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """A product multiplied once more, by one number for each column."""
    for product, factor in (call.args, call.args[::-1]):
        found, values = scope.call(product, NAME), rw.constant(factor)
        if found is None or values is None or not scope.only_use(product):
            continue
        x, weights, scales, *centres = found.args
        known = rw.constant(scales)
        if known is None or not _per_column(values, known.size):
            return None
        whole = relax.const((known * values.reshape(-1)).astype(np.float32))
        return relax.Call(found.op, [x, weights, whole, *centres], found.attrs, [])
    return None


def _per_column(values: np.ndarray, columns: int) -> bool:
    return values.size == 1 or (values.size == columns and values.shape[-1] == columns)


def _step_and_scales(scope: Scope, factor: relax.Expr) -> tuple[relax.Expr, np.ndarray]:
    both = scope.call(factor, "multiply")
    if both is not None:
        for step, scales in (both.args, both.args[::-1]):
            value = rw.constant(scales)
            if value is not None and value.ndim <= 1:
                return step, value
    return factor, np.ones(1, np.float32)


def _rounded(scope: Scope, integers: relax.Expr, step: relax.Expr) -> relax.Expr | None:
    """What was rounded to these steps; None where the integers are something else."""
    centred = scope.call(integers, "subtract")
    if centred is None:
        return None
    bytes_of = [_cast(scope, arg, "int32") for arg in centred.args]
    floats = [_cast(scope, b, "uint8") if b is not None else None for b in bytes_of]
    shifted = scope.call(floats[0], "clip") if floats[0] is not None else None
    x = shifted
    for name in ("add", "round", "divide"):
        x = scope.call(x.args[0], name) if x is not None else None
    if x is None:
        return None
    wanted = in_steps(lambda expr: expr, x.args[0])
    found = (floats[0], step, floats[1])
    same = all(_same(scope, one, other) for one, other in zip(found, wanted, strict=True))
    return x.args[0] if same else None


def _cast(scope: Scope, expr: relax.Expr, dtype: str) -> relax.Expr | None:
    cast = scope.call(expr, "astype")
    return cast.args[0] if cast is not None and rw.dtype_of(cast) == dtype else None


def _same(scope: Scope, found: relax.Expr | None, wanted: relax.Expr) -> bool:
    """Whether an expression of the function is a given one, which has no variables of its own."""
    if isinstance(wanted, tvm.ir.GenericConst):
        value = rw.constant(found) if found is not None else None
        return value is not None and np.array_equal(value, wanted.value.numpy())
    if isinstance(wanted, tvm.tirx.IntImm | tvm.tirx.FloatImm):
        return bool(getattr(found, "value", None) == wanted.value)
    if not isinstance(wanted, relax.Call):
        return found is not None and found.same_as(wanted)
    call = scope.call(found, rw.op_name(wanted)) if found is not None else None
    if call is None or len(call.args) != len(wanted.args):
        return False
    same = all(_same(scope, a, b) for a, b in zip(call.args, wanted.args, strict=True))
    return same and bool(tvm_ffi.structural_equal(call.attrs, wanted.attrs))


RULES: Rules = {"multiply": (_product, _scaled)}
