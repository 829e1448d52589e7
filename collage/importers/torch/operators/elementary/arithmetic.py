"""Sums with factors, products, powers, comparisons and extremes, in the type that PyTorch computes
them in: truth values and whole numbers too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import fx
from tvm import relax
from tvm.relax import op

from collage.cost.reference.rounding import HALF
from collage.importers.torch.operators.arguments import Importer, arguments, dtype_of, shape_of

Operator = Callable[[relax.Expr, relax.Expr], relax.Expr]
Converter = Callable[[Importer, fx.Node], Any]

_EXPONENT_BITS = 7


def result_kind(node: fx.Node) -> str:
    """The element type of a node's result."""
    return str(node.meta["val"].dtype).removeprefix("torch.")


def as_kind(importer: Importer, value: Any, kind: str) -> relax.Expr:
    """A tensor or a number as a tensor of an element type.

    Parameters
    ----------
    importer : Importer
        Binds what is computed on the way.
    value : relax.Expr or number
        Of any shape.
    kind : str
        The element type.

    Returns
    -------
    relax.Expr
        The value itself, where it is of that type.
    """
    if not isinstance(value, relax.Expr):
        return _constant(value, kind)
    return value if dtype_of(value) == kind else importer.emit(op.astype(value, kind))


def _constant(value: Any, kind: str) -> relax.Expr:
    """A number in a type; whole ones that it has no room for lose their highest bits."""
    whole = isinstance(value, int) and "int" in kind
    return relax.const(np.int64(value).astype(kind) if whole else value, kind)


def _in_all_digits(importer: Importer, value: Any, kind: str) -> relax.Expr | None:
    """A number that a type of half precision cannot hold, which PyTorch multiplies by in float32.

    None for others. It is rounded as the type has it only where nothing is done with its digits.
    """
    if not isinstance(value, float) or kind not in HALF:
        return None
    if torch.tensor(value, dtype=getattr(torch, kind)).item() == value:
        return None
    return importer.emit(op.astype(relax.const(value, "float32"), kind))


def _sum(apply: Operator, *, turned: bool = False) -> Converter:
    """``x + alpha * y``; TVM's translator forgets the factor."""

    def convert(importer: Importer, node: fx.Node) -> relax.Expr:
        x, y, alpha = arguments(importer, node, "self", "other", "alpha")
        kind = result_kind(node)
        one, two = (as_kind(importer, value, kind) for value in ((y, x) if turned else (x, y)))
        if kind == "bool":
            return importer.emit(op.logical_or(one, two))
        if alpha not in (None, 1):
            factor = _in_all_digits(importer, alpha, kind)
            two = importer.emit(
                op.multiply(two, _constant(alpha, kind) if factor is None else factor)
            )
        return importer.emit(apply(one, two))

    return convert


def _of_truth(numbers: Operator, truth: Operator) -> Converter:
    """What TVM's translator has for numbers, and another operator for truth values."""

    def convert(importer: Importer, node: fx.Node) -> relax.Expr:
        x, y = arguments(importer, node, "self", "other")
        kind = result_kind(node)
        one, two = (as_kind(importer, value, kind) for value in (x, y))
        return importer.emit((truth if kind == "bool" else numbers)(one, two))

    return convert


def _compared(compare: Operator) -> Converter:
    """In the type that both have in common; of truth values, as numbers."""

    def convert(importer: Importer, node: fx.Node) -> relax.Expr:
        x, y = arguments(importer, node, "self", "other")
        metas = [a.meta["val"] if isinstance(a, fx.Node) else a for a in node.args[:2]]
        kind = str(torch.result_type(*metas)).removeprefix("torch.")
        one, two = (as_kind(importer, value, kind) for value in (x, y))
        if kind == "bool":
            one, two = (importer.emit(op.astype(value, "int8")) for value in (one, two))
        return importer.emit(compare(one, two))

    return convert


def _classified(classify: Callable[[relax.Expr], relax.Expr], *, whole: bool) -> Converter:
    """What is asked of floats only; the answer for everything else is known."""

    def convert(importer: Importer, node: fx.Node) -> relax.Expr:
        (x,) = arguments(importer, node, "self")
        if "float" in dtype_of(x):
            return importer.emit(classify(x))
        return relax.const(np.full(shape_of(x), whole), "bool")

    return convert


def _scaled(apply: Operator, otherwise: Converter | None = None) -> Converter:
    """With a number that half precision cannot hold, in all its digits."""

    def convert(importer: Importer, node: fx.Node) -> relax.Expr | None:
        x, y = arguments(importer, node, "self", "other")
        number = _in_all_digits(importer, y, result_kind(node))
        if number is None:
            return None if otherwise is None else otherwise(importer, node)
        return importer.emit(apply(as_kind(importer, x, result_kind(node)), number))

    return convert


def _power(importer: Importer, node: fx.Node) -> relax.Expr | None:
    """Of whole numbers, of which TVM has powers with known exponents at most."""
    x, y = arguments(importer, node, "self", "exponent")
    kind = result_kind(node)
    if "int" not in kind:
        base, exponent = (as_kind(importer, value, kind) for value in (x, y))
        return importer.emit(op.power(base, exponent))
    emit = importer.emit
    base, exponent = (as_kind(importer, value, kind) for value in (x, y))

    def number(value: int) -> relax.Expr:
        return relax.const(value, kind)

    negative = emit(op.less(exponent, number(0))) if not kind.startswith("u") else None
    odd = emit(op.not_equal(emit(op.bitwise_and(exponent, number(1))), number(0)))
    # Of an even base nothing is left long before; 0, 1 and -1 ask for parity alone.
    most = 2**_EXPONENT_BITS - 1
    beyond = emit(op.greater(exponent, number(most)))
    large = emit(op.where(odd, number(most), number(most - 1)))
    rest, square = emit(op.where(beyond, large, exponent)), base
    found: relax.Expr = number(1)
    for bit in range(_EXPONENT_BITS):
        here = emit(op.bitwise_and(rest, number(1 << bit)))
        here = emit(op.not_equal(here, number(0)))
        found = emit(op.multiply(found, emit(op.where(here, square, number(1)))))
        if bit < _EXPONENT_BITS - 1:
            square = emit(op.multiply(square, square))
    if negative is None:
        return found
    sign = emit(op.where(odd, number(-1), number(1)))
    turned = emit(op.where(emit(op.equal(base, number(-1))), sign, number(0)))
    turned = emit(op.where(emit(op.equal(base, number(1))), number(1), turned))
    return emit(op.where(negative, turned, found))


def _sign(importer: Importer, node: fx.Node) -> relax.Expr:
    (x,) = arguments(importer, node, "self")
    return x if dtype_of(x) == "bool" else importer.emit(op.sign(x))


ARITHMETIC: dict[str, Converter] = {
    **dict.fromkeys(["add.Tensor", "add.Scalar"], _sum(op.add)),
    **dict.fromkeys(["sub.Tensor", "sub.Scalar"], _sum(op.subtract)),
    **dict.fromkeys(["rsub.Tensor", "rsub.Scalar"], _sum(op.subtract, turned=True)),
    **dict.fromkeys(
        ["mul.Tensor", "mul.Scalar"], _scaled(op.multiply, _of_truth(op.multiply, op.logical_and))
    ),
    **dict.fromkeys(["div.Tensor", "div.Scalar"], _scaled(op.divide)),
    "maximum.default": _of_truth(op.maximum, op.logical_or),
    "minimum.default": _of_truth(op.minimum, op.logical_and),
    **{
        f"{name}.{form}": _compared(compare)
        for form in ("Tensor", "Scalar")
        for name, compare in {
            "eq": op.equal,
            "ne": op.not_equal,
            "lt": op.less,
            "le": op.less_equal,
            "gt": op.greater,
            "ge": op.greater_equal,
        }.items()
    },
    "isnan.default": _classified(op.isnan, whole=False),
    "isinf.default": _classified(op.isinf, whole=False),
    "isfinite.default": _classified(op.isfinite, whole=True),
    **dict.fromkeys(["pow.Tensor_Tensor", "pow.Scalar"], _power),
    **dict.fromkeys(["sign.default", "sgn.default"], _sign),
}
"""By the name that the translator has for an operator."""
