"""Patterns of the epilogues that products and convolutions have in common."""

from __future__ import annotations

import math

import tvm
from tvm import relax
from tvm.relax.dpl import is_const, is_op, wildcard

from collage.backends.contract import Match, Predicate, Verdict
from collage.backends.relax.patterns import Chain, either_order, with_activation, with_residual


def with_checked_activation(chain: Chain, activation: str) -> tuple[Chain, Predicate]:
    """The chain with an activation, and a check of the numbers that make it this activation.

    Parameters
    ----------
    chain : Chain
        What the activation is applied to.
    activation : str
        One of :data:`collage.backends.relax.patterns.ACTIVATIONS`, or ``relu6``.

    Returns
    -------
    tuple[Chain, Predicate]
        The longer chain, and the predicate; it accepts every match of an activation without
        numbers.
    """
    if activation == "relu6":
        low, high = wildcard(), wildcard()
        clipped = is_op("relax.clip")(chain.pattern, low, high)
        named = chain.then(clipped, low=low, high=high)
        return named, _numbers("relu6 clips at 0 and 6", low=0.0, high=6.0)
    if activation == "hardswish":
        scale, shift, low, high = is_const(), is_const(), wildcard(), wildcard()
        scaled = either_order("relax.multiply", chain.pattern, scale)
        shifted = either_order("relax.add", scaled, shift)
        gate = is_op("relax.clip")(shifted, low, high)
        gated = either_order("relax.multiply", chain.pattern, gate)
        named = chain.then(gated, scale=scale, shift=shift, low=low, high=high)
        wanted = {"scale": 1 / 6, "shift": 0.5, "low": 0.0, "high": 1.0}
        return named, _numbers("hard-swish is x * clip(x / 6 + 1/2, 0, 1)", **wanted)
    return with_activation(chain, activation), _accept


def with_joined_residual(chain: Chain, residual: str) -> Chain:
    """The chain with another value added or multiplied, named ``residual``; or as it is.

    Parameters
    ----------
    chain : Chain
        What the other value is joined to.
    residual : str
        ``add``, ``multiply``, or empty for none.

    Returns
    -------
    Chain
        Its root is the sum or the product, whichever operand comes first.
    """
    if residual == "add":
        return with_residual(chain)
    if residual == "multiply":
        other = wildcard()
        return chain.then(either_order("relax.multiply", chain.pattern, other), residual=other)
    return chain


def _number_of(expr: relax.Expr) -> float | None:
    """The value of a one-element constant or of a number, or None for anything else."""
    if isinstance(expr, tvm.ir.GenericConst):
        array = expr.value.numpy()
        return float(array.reshape(-1)[0]) if array.size == 1 else None
    value = getattr(expr, "value", expr)
    value = getattr(value, "value", value)
    return float(value) if isinstance(value, int | float) else None


def _accept(_: Match) -> Verdict:
    return Verdict.yes()


def _numbers(meaning: str, **wanted: float) -> Predicate:
    def check(match: Match) -> Verdict:
        for name, value in wanted.items():
            given = _number_of(match.annotated[name])
            # Half types hold 1/6 to three digits.
            if given is None or not math.isclose(given, value, rel_tol=5e-3, abs_tol=1e-6):
                shown = "no number" if given is None else f"{given:g}"
                return Verdict.no(f"{name} is {shown}, not {value:g}: {meaning}")
        return Verdict.yes()

    return check
