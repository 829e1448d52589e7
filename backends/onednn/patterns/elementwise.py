"""Functions of single elements, and rounding to steps of bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tvm.relax.dpl import is_const, is_op, wildcard

from collage.backends.contract import Match, PatternTriple, Verdict
from collage.backends.onednn.operators.elementwise import BINARY, UNARY
from collage.backends.onednn.patterns._base import call_of, ranks, triple
from collage.backends.relax.patterns import (
    Chain,
    all_of,
    float32_tensors,
    hard_sigmoid,
    hard_swish,
    operator,
    silu_chain,
    with_activation,
    with_bias,
)
from collage.backends.relax.static_shape import tensor_dtype, tensor_shape


def elementwise() -> Iterator[PatternTriple]:
    """Triples of functions of single elements."""
    for name in UNARY:
        yield triple(name.removeprefix("nn."), operator(f"relax.{name}", 1))
    yield triple("leakyrelu", operator("relax.nn.leakyrelu", 1))
    yield triple("clip", operator("relax.clip", 3))
    yield triple("power", operator("relax.power", 2, constants=[1]), _number_exponent)
    for name in BINARY:
        yield triple(name, operator(f"relax.{name}", 2), _one_side_broadcast)
    multiplied = operator("relax.multiply", 2, constants=[1])
    shifted = with_bias(multiplied)
    yield triple("multiply_add", shifted, _one_side_broadcast)
    yield triple("multiply_add_relu", with_activation(shifted, "relu"), _one_side_broadcast)
    yield from _rounding()
    x = wildcard()
    for name, chain in (
        ("silu_chain", silu_chain(x)),
        ("hardsigmoid", hard_sigmoid(x)),
        ("hardswish", hard_swish(x)),
    ):
        yield triple(name, Chain(chain, {"x": x}))


def _rounding() -> Iterator[PatternTriple]:
    x, numbers = wildcard(), [is_const() for _ in range(4)]
    bytes_of = is_op("relax.quantize")(x, *numbers[:2])
    back = is_op("relax.dequantize")(bytes_of, *numbers[2:])
    chain = Chain(back, {"x": x})
    named = {f"number{i}": number for i, number in enumerate(numbers)}

    def to_bytes(match: Match) -> Verdict:
        # Scale and zero point are of types of their own: they are looked at here.
        for name in named:
            shape = tensor_shape(match.annotated[name])
            if shape is None or math.prod(shape) != 1:
                return Verdict.no(f"a scale or zero point has shape {shape}, not one for all")
        dtype = tensor_dtype(match.annotated["bytes"])
        if dtype not in ("int8", "uint8"):
            return Verdict.no(f"values are rounded to {dtype}, not to bytes")
        values = [match.annotated[name].value.numpy().item() for name in named]
        if values[:2] != values[2:]:
            return Verdict.no(f"rounded to {values[:2]} (step, zero), read as {values[2:]}")
        return float32_tensors(Match(match.root, {"x": match.annotated["x"]}))

    yield PatternTriple(
        "onednn.round_to_bytes",
        chain.pattern,
        all_of(to_bytes, ranks),
        {**chain.annotations, "bytes": bytes_of, **named},
    )


def _number_exponent(match: Match) -> Verdict:
    shape = tensor_shape(match.annotated["arg1"])
    if shape is None or math.prod(shape) != 1:
        return Verdict.no(f"the exponent has shape {shape}; only a single number is supported")
    return Verdict.yes()


def _one_side_broadcast(match: Match) -> Verdict:
    call = call_of(match)
    result = tensor_shape(call)
    shapes = [tensor_shape(arg) for arg in call.args]
    if result not in shapes:
        return Verdict.no(f"both operands {shapes} are broadcast to {result}")
    return Verdict.yes()
