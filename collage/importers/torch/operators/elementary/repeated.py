"""Functions of elements that take a number of steps that data say: tensor programs, in loops.

The greatest common divisor (Euclid), and the regularized incomplete gamma functions, by the series
or the continued fraction that ends sooner (W. Press et al., Numerical Recipes, 6.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx
from tvm import relax, tirx
from tvm.relax import op
from tvm.script.ir_builder import tirx as T

from collage.importers.torch.operators.arguments import Importer, dtype_of, shape_of
from collage.importers.torch.operators.elementary.special import GAMMA, GAMMA_SHIFT
from collage.importers.torch.operators.errors import RefusedError
from collage.importers.torch.operators.linear.batches import WIDE, Write, cell, computed, real

_MOST_STEPS = 20_000
"""More than the square root of any argument in float32 that is told from its neighbour asks for."""

_SMALLEST = _NEAR = 1e-9
"""Of a sum, and of a step from one: what is less changes no digit of float32."""

_TINY, _BEYOND = 1e-150, 1e30


def _alike(importer: Importer, node: fx.Node) -> tuple[list[relax.Expr], list[int], str]:
    """Both operands in the result's shape and type, and these."""
    wanted = node.meta["val"]
    shape = [int(extent) for extent in wanted.shape]
    dtype = str(wanted.dtype).removeprefix("torch.")
    found = []
    for argument in node.args:
        x = importer.value(argument)
        x = x if dtype_of(x) == dtype else importer.emit(op.astype(x, dtype))
        found.append(x if shape_of(x) == shape else importer.emit(op.broadcast_to(x, shape)))
    return found, shape, dtype


def _by_element(
    importer: Importer, name: str, given: Sequence[relax.Expr], dtype: str, write: Write
) -> relax.Expr:
    rows = [importer.emit(op.reshape(x, [-1])) for x in given]
    return computed(importer, name, rows, [(shape_of(rows[0]), dtype)], write)[0]


def _greatest_divisor(importer: Importer, node: fx.Node) -> relax.Expr:
    operands, shape, dtype = _alike(importer, node)
    if 0 in shape:
        return operands[0]

    def write(ins: Sequence[Any], outs: Sequence[Any], b: Any) -> None:
        (x, y), (found,) = ins, outs
        larger, smaller, kept = cell(dtype), cell(dtype), cell(dtype)
        larger[0], smaller[0] = x[b], y[b]
        with T.While(smaller[0] != tirx.const(0, dtype)), T.seq_scope():
            kept[0] = tirx.truncmod(larger[0], smaller[0])
            larger[0] = smaller[0]
            smaller[0] = kept[0]
        size = larger[0]
        if not dtype.startswith("uint"):
            size = tirx.Select(size < tirx.const(0, dtype), tirx.const(0, dtype) - size, size)
        found[b] = size

    return importer.emit(op.reshape(_by_element(importer, "gcd", operands, dtype, write), shape))


def _log_gamma(a: Any) -> Any:
    """Of what is above zero, in double precision."""

    # From there on it is a constant.
    near = tirx.min(a, real(1e15))

    def polynomial(factors: Sequence[float]) -> Any:
        found = real(factors[0])
        for factor in factors[1:]:
            found = found * near + real(factor)
        return found

    above, below = (polynomial(factors) for factors in GAMMA)
    whole = (a - real(0.5)) * (tirx.log(a + real(GAMMA_SHIFT - 0.5)) - real(1))
    return whole - real(GAMMA_SHIFT) + tirx.log(above / below)


def _incomplete(upper: bool) -> Callable[[Importer, fx.Node], relax.Expr]:
    def convert(importer: Importer, node: fx.Node) -> relax.Expr:
        operands, shape, dtype = _alike(importer, node)
        if dtype == WIDE:
            raise RefusedError("a special function that is known here in float32 alone")
        if 0 in shape:
            return operands[0]
        name = "igammac" if upper else "igamma"
        found = _by_element(importer, name, operands, WIDE, _shares(upper))
        return importer.emit(op.astype(importer.emit(op.reshape(found, shape)), dtype))

    return convert


def _shares(upper: bool) -> Write:
    def write(ins: Sequence[Any], outs: Sequence[Any], i: Any) -> None:
        (a, x), (found,) = ins, outs
        share, factor = cell(), cell()
        zero, one, infinite = real(0), real(1), real(math.inf)
        # Of an order of zero, or up to no end, all lies below; up to zero, or of no end, nothing.
        everything = tirx.any(a[i] == zero, x[i] == infinite)
        share[0] = tirx.Select(everything, real(0 if upper else 1), real(1 if upper else 0))
        plain = tirx.all(a[i] > zero, x[i] > zero, a[i] < infinite, x[i] < infinite)
        with T.If(plain), T.Then(), T.seq_scope():
            factor[0] = tirx.exp(a[i] * tirx.log(x[i]) - x[i] - _log_gamma(a[i]))
            # What comes out is near zero, and keeps its digits: the other is its complement.
            with T.If(x[i] < a[i] + one):
                with T.Then(), T.seq_scope():
                    below = _series(a[i], x[i]) * factor[0]
                    share[0] = one - below if upper else below
                with T.Else(), T.seq_scope():
                    above = _fraction(a[i], x[i]) * factor[0]
                    share[0] = above if upper else one - above
        # Not a number counts where the other operand does not settle it, as in PyTorch.
        settled = tirx.any(x[i] == zero, x[i] == infinite)
        wrong = tirx.any(
            tirx.any(a[i] < zero, x[i] < zero),
            tirx.all(a[i] == x[i], tirx.any(a[i] == zero, a[i] == infinite)),
            # LLVM's comparison of what differs is false for what is not a number.
            tirx.all(tirx.isnan(a[i]), tirx.isnan(x[i])),
            tirx.all(tirx.isnan(a[i]), tirx.Not(settled)),
            tirx.all(tirx.isnan(x[i]), a[i] != infinite),
        )
        found[i] = tirx.Select(wrong, real(math.nan), share[0])

    return write


def _series(a: Any, x: Any) -> Any:
    """The sum of ``x ** n / (a (a + 1) ... (a + n))``."""
    term, total, step = cell(), cell(), cell()
    term[0] = real(1) / a
    total[0] = term[0]
    step[0] = real(0)
    with T.While(tirx.all(term[0] > total[0] * _SMALLEST, step[0] < _MOST_STEPS)), T.seq_scope():
        step[0] = step[0] + real(1)
        term[0] = term[0] * x / (a + step[0])
        total[0] = total[0] + term[0]
    return total[0]


def _fraction(a: Any, x: Any) -> Any:
    """``1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - ...))``, from the front (Lentz)."""
    upper, lower, found, change, step, part, above, inverse = (cell() for _ in range(8))
    upper[0] = real(_BEYOND)
    lower[0] = real(1) / (x + real(1) - a)
    found[0] = lower[0]
    change[0] = real(0)
    step[0] = real(0)
    far = tirx.abs(change[0] - real(1)) > real(_NEAR)
    with T.While(tirx.all(far, step[0] < _MOST_STEPS)), T.seq_scope():
        step[0] = step[0] + real(1)
        part[0] = x + real(1) - a + real(2) * step[0]
        change[0] = step[0] * (a - step[0])
        lower[0] = _not_zero(change[0] * lower[0] + part[0])
        # Of both quotients one: a step waits for it.
        above[0] = part[0] * upper[0] + change[0]
        inverse[0] = real(1) / (lower[0] * upper[0])
        change[0] = above[0] * inverse[0]
        above[0] = _not_zero(change[0] * lower[0])
        lower[0] = inverse[0] * upper[0]
        upper[0] = above[0]
        found[0] = found[0] * change[0]
    return found[0]


def _not_zero(x: Any) -> Any:
    return tirx.Select(tirx.abs(x) < real(_TINY), real(_TINY), x)


REPEATED: dict[str, Callable[[Importer, fx.Node], relax.Expr]] = {
    "gcd.default": _greatest_divisor,
    "igamma.default": _incomplete(upper=False),
    "igammac.default": _incomplete(upper=True),
}
"""By the name that the translator has for an operator."""
