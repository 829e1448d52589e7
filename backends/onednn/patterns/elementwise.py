"""Functions of single elements, and rounding to steps of bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tvm.relax.dpl import wildcard

from collage.backends.contract import Match, PatternTriple, Verdict
from collage.backends.onednn.operators.elementwise import BINARY, UNARY
from collage.backends.onednn.patterns._base import call_of, ranks, triple
from collage.backends.relax.byte_patterns import round_to_bytes
from collage.backends.relax.patterns import (
    Chain,
    hard_sigmoid,
    hard_swish,
    operator,
    silu_chain,
    with_activation,
    with_bias,
)
from collage.backends.relax.static_shape import tensor_shape

_FLOAT32_DIGITS = 17.0
"""Beyond it log(1 + exp(x)) is x in float32: exp(-17) of 17 is less than half of its last digit."""


def elementwise() -> Iterator[PatternTriple]:
    """Triples of functions of single elements."""
    for name in UNARY:
        yield triple(name.removeprefix("nn."), operator(f"relax.{name}", 1))
    yield triple("leakyrelu", operator("relax.nn.leakyrelu", 1))
    yield triple("softplus", operator("relax.nn.softplus", 1), _threshold_beyond_digits)
    yield triple("prelu", operator("relax.nn.prelu", 2, constants=[1]), _slope_by_channel)
    yield triple("clip", operator("relax.clip", 3))
    yield triple("power", operator("relax.power", 2, constants=[1]), _number_exponent)
    for name in BINARY:
        yield triple(name, operator(f"relax.{name}", 2), _one_side_broadcast)
    multiplied = operator("relax.multiply", 2, constants=[1])
    shifted = with_bias(multiplied)
    yield triple("multiply_add", shifted, _one_side_broadcast)
    yield triple("multiply_add_relu", with_activation(shifted, "relu"), _one_side_broadcast)
    yield round_to_bytes("onednn", ranks)
    x = wildcard()
    for name, chain in (
        ("silu_chain", silu_chain(x)),
        ("hardsigmoid", hard_sigmoid(x)),
        ("hardswish", hard_swish(x)),
    ):
        yield triple(name, Chain(chain, {"x": x}))


def _number_exponent(match: Match) -> Verdict:
    shape = tensor_shape(match.annotated["arg1"])
    if shape is None or math.prod(shape) != 1:
        return Verdict.no(f"the exponent has shape {shape}; only a single number is supported")
    return Verdict.yes()


def _threshold_beyond_digits(match: Match) -> Verdict:
    """From where on a softplus is its argument to the last digit, the threshold says nothing."""
    attrs = call_of(match).attrs
    if not float(attrs.beta) > 0 or float(attrs.threshold) < _FLOAT32_DIGITS:
        return Verdict.no(f"softplus of beta {attrs.beta} is cut off at {attrs.threshold}")
    return Verdict.yes()


def _slope_by_channel(match: Match) -> Verdict:
    shape = tensor_shape(match.annotated["arg0"]) or ()
    axis = int(call_of(match).attrs.axis) % max(1, len(shape))
    if axis != 1:
        return Verdict.no(f"slopes along axis {axis} of {len(shape)}; supported: 1, the channels'")
    return Verdict.yes()


def _one_side_broadcast(match: Match) -> Verdict:
    call = call_of(match)
    result = tensor_shape(call)
    shapes = [tensor_shape(arg) for arg in call.args]
    if result not in shapes:
        return Verdict.no(f"both operands {shapes} are broadcast to {result}")
    return Verdict.yes()
