"""Elementwise operators, and those that PyTorch's own decompositions leave behind."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import fx
from tvm import relax
from tvm.relax import op

from collage.cost.reference.rounding import HALF
from collage.importers.elementary import hyperbolic
from collage.importers.torch.operators.arguments import Importer, arguments, dtype_of, shape_of
from collage.importers.torch.operators.elementary.arithmetic import ARITHMETIC, as_kind, result_kind
from collage.importers.torch.operators.elementary.repeated import REPEATED


def _elu(importer: Importer, node: fx.Node) -> relax.Expr:
    """As TVM's, which forgets the scales: SELU is this with one."""
    x, alpha, scale, input_scale = arguments(
        importer, node, "self", "alpha", "scale", "input_scale"
    )
    dtype = dtype_of(x)

    def number(value: float) -> relax.Expr:
        return relax.const(value, dtype)

    inner = x if input_scale == 1 else op.multiply(x, number(input_scale))
    fall = op.nn.relu(op.subtract(number(1.0), op.exp(inner)))
    result = importer.emit(op.add(op.multiply(number(-alpha), fall), op.nn.relu(x)))
    return result if scale == 1 else importer.emit(op.multiply(result, number(scale)))


def _rounded_quotient(importer: Importer, node: fx.Node) -> relax.Expr:
    """In float32 where a type has fewer digits: rounded first, a quotient may reach a whole one."""
    one, two, mode = arguments(importer, node, "self", "other", "rounding_mode")
    kind = result_kind(node)
    wide = "float32" if kind in HALF else kind
    x, y = (as_kind(importer, value, wide) for value in (one, two))
    if kind.startswith("uint") or (mode == "floor" and "int" in kind):
        return importer.emit(op.floor_divide(x, y))
    if "int" in kind:
        size = importer.emit(op.floor_divide(op.abs(x), op.abs(y)))
        return importer.emit(op.multiply(size, op.multiply(op.sign(x), op.sign(y))))
    quotient = importer.emit(op.divide(x, y))
    if mode == "trunc":
        quotient = importer.emit(op.trunc(quotient))
    elif mode == "floor":
        # 1 divided by 0.1 is 10 as it is rounded, and 0.1 goes into 1 nine times.
        rest = importer.emit(op.floor_mod(x, y))
        whole = importer.emit(op.round(op.divide(op.subtract(x, rest), y)))
        nothing = op.equal(y, relax.const(0, wide))
        quotient = importer.emit(op.where(nothing, quotient, whole))
    return quotient if wide == kind else importer.emit(op.astype(quotient, kind))


def _number_of(
    choose: Callable[..., relax.Expr], of_truth: Callable[..., relax.Expr]
) -> Callable[[Importer, fx.Node], relax.Expr]:
    """The larger or the smaller of two; of a number and what is none, the number."""

    def convert(importer: Importer, node: fx.Node) -> relax.Expr:
        one, two = arguments(importer, node, "self", "other")
        if dtype_of(one) == "bool":
            return importer.emit(of_truth(one, two))
        if "float" not in dtype_of(one):
            return importer.emit(choose(one, two))
        both = importer.emit(choose(one, two))
        either = importer.emit(op.where(importer.emit(op.isnan(two)), one, both))
        return importer.emit(op.where(importer.emit(op.isnan(one)), two, either))

    return convert


def _power_of_two(importer: Importer, node: fx.Node) -> relax.Expr:
    (x,) = arguments(importer, node, "self")
    return importer.emit(op.power(relax.const(2.0, dtype_of(x)), x))


def _converted(importer: Importer, node: fx.Node) -> relax.Expr:
    """What PyTorch's own decompositions say for another element type."""
    (x,) = arguments(importer, node, "a")
    return importer.emit(op.astype(x, str(node.meta["val"].dtype).removeprefix("torch.")))


def _clamp(importer: Importer, node: fx.Node) -> relax.Expr:
    """TVM's translator bounds whole numbers by infinities, which it cannot compile."""
    x, low, high = arguments(importer, node, "self", "min", "max")
    kind = result_kind(node)
    x = as_kind(importer, x, kind)
    if kind == "bool":
        for bound, choose in ((low, op.logical_or), (high, op.logical_and)):
            if bound is not None:
                x = importer.emit(choose(x, as_kind(importer, bound, kind)))
        return x
    for bound, choose in ((low, op.maximum), (high, op.minimum)):
        if bound is None:
            continue
        if not isinstance(bound, relax.Expr):
            if "float" not in kind:
                limits = np.iinfo(kind)
                bound = min(max(int(bound), int(limits.min)), int(limits.max))
            bound = relax.const(bound, kind)
        x = importer.emit(choose(x, bound))
    return x


def _quotient(importer: Importer, node: fx.Node) -> relax.Expr:
    one, two = (
        as_kind(importer, x, result_kind(node)) for x in arguments(importer, node, "self", "other")
    )
    return importer.emit(op.divide(one, two))


def _variance(importer: Importer, node: fx.Node) -> relax.Expr:
    """Divided by the number of elements less the correction."""
    x, dims, correction = arguments(importer, node, "inp", "dims", "correction")
    shape, kind = shape_of(x), dtype_of(x)
    axes = list(range(len(shape))) if dims is None else [int(axis) for axis in dims]
    correction = 1.0 if correction is None else float(correction)
    count = math.prod(shape[axis] for axis in axes)
    wide = x if kind in ("float32", "float64") else importer.emit(op.astype(x, "float32"))
    found = importer.emit(op.variance(wide, axes))
    scale = count / max(count - correction, 0.0) if count > correction else float("nan")
    found = importer.emit(op.multiply(found, relax.const(scale, dtype_of(wide))))
    return found if wide is x else importer.emit(op.astype(found, kind))


def _hyperbolic(*, sine: bool) -> Callable[[Importer, fx.Node], relax.Expr]:
    def convert(importer: Importer, node: fx.Node) -> relax.Expr:
        (x,) = arguments(importer, node, "self")
        return hyperbolic(importer.emit, x, sine=sine)

    return convert


def _total(importer: Importer, node: fx.Node) -> relax.Expr | None:
    """The sum over given axes that decompositions leave, which shares its name with another."""
    x, axes = arguments(importer, node, "inp", "dims")
    if x is None:
        return None
    return importer.emit(op.sum(x, [int(axis) for axis in axes])) if axes else x


def _broadcast(importer: Importer, node: fx.Node) -> relax.Expr:
    """A tensor whose axes are these ones of the result."""
    x, shape, axes = arguments(importer, node, "a", "shape", "broadcast_dimensions")
    there = [1] * len(shape)
    for axis, extent in zip(axes, shape_of(x), strict=True):
        there[axis] = extent
    spread = importer.emit(op.reshape(x, there))
    return importer.emit(op.broadcast_to(spread, relax.ShapeExpr([int(n) for n in shape])))


ELEMENTWISE: dict[str, Callable[[Importer, fx.Node], Any]] = {
    **dict.fromkeys(["clamp.default", "clamp.Tensor"], _clamp),
    **dict.fromkeys(["clamp_min.default", "clamp_max.default"], _clamp),
    "elu.default": _elu,
    "div.Tensor_mode": _rounded_quotient,
    "div.Scalar_mode": _rounded_quotient,
    "fmax.default": _number_of(op.maximum, op.logical_or),
    "fmin.default": _number_of(op.minimum, op.logical_and),
    "exp2.default": _power_of_two,
    "convert_element_type.default": _converted,
    "div.default": _quotient,
    "var.default": _variance,
    "broadcast_in_dim.default": _broadcast,
    "sinh.default": _hyperbolic(sine=True),
    "cosh.default": _hyperbolic(sine=False),
    "sum.default": _total,
    **ARITHMETIC,
    **REPEATED,
}
"""By the name that the translator has for an operator."""
