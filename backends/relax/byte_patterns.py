"""Patterns of what is rounded to bytes, and of products of bytes."""

from __future__ import annotations

import math

from tvm.relax.dpl import is_const, is_op, wildcard

from collage.backends.contract import Match, PatternTriple, Predicate, Verdict
from collage.backends.relax.patterns.chains import Chain, operator
from collage.backends.relax.patterns.predicates import all_of, float32_tensors
from collage.backends.relax.static_shape import tensor_dtype, tensor_shape
from collage.backends.relax.stepped import NAME as STEPPED
from collage.backends.relax.stepped import Steps


def round_to_bytes(backend: str, *predicates: Predicate) -> PatternTriple:
    """A float32 tensor rounded to bytes and taken for what they stand for.

    Parameters
    ----------
    backend : str
        What the triple's name begins with.
    *predicates : Predicate
        What else has to hold; the tensor is named ``x``.

    Returns
    -------
    PatternTriple
        Of ``dequantize(quantize(x))``, both with one step and one zero point, the same.
    """
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

    return PatternTriple(
        f"{backend}.round_to_bytes",
        chain.pattern,
        all_of(to_bytes, *predicates),
        {**chain.annotations, "bytes": bytes_of, **named},
    )


def product_in_steps(backend: str) -> PatternTriple:
    """A product of bytes that stand for values in fixed steps, with bytes around zero.

    Parameters
    ----------
    backend : str
        What the triple's name begins with.

    Returns
    -------
    PatternTriple
        Of ``collage.stepped_matmul`` without centres.
    """
    chain = operator(STEPPED, 3, (1, 2))

    def in_fixed_steps(match: Match) -> Verdict:
        call = match.annotated["root"]
        if Steps.of(call) is None:
            return Verdict.no("values are rounded over their own range")
        return float32_tensors(Match(match.root, {"x": call.args[0]}))

    return PatternTriple(
        f"{backend}.product_in_steps", chain.pattern, in_fixed_steps, chain.annotations
    )
