"""Operators that move numbers and change none."""

from __future__ import annotations

from collections.abc import Iterator

from tvm import relax
from tvm.relax.dpl import is_op, wildcard

from collage.backends.contract import Match, PatternTriple, Verdict
from collage.backends.onednn.patterns._base import call_of, triple
from collage.backends.relax.patterns import Chain, operator


def movement() -> Iterator[PatternTriple]:
    """Triples of operators that only move numbers."""
    yield triple("reshape", operator("relax.reshape", 2))
    for name in ("squeeze", "expand_dims", "flatten", "nn.batch_flatten"):
        yield triple(name.removeprefix("nn."), operator(f"relax.{name}", 1))
    yield triple("permute_dims", operator("relax.permute_dims", 1))
    yield triple("concat", operator("relax.concat", 1), _tuple_of_float32)
    yield triple("split", operator("relax.split", 1))
    x = wildcard()
    # The strides, its last argument, may be absent.
    sliced = is_op("relax.strided_slice")(x, varg_default_wildcard=True)
    yield triple("strided_slice", Chain(sliced, {"root": sliced, "arg0": x}), _unit_steps)
    yield triple("pad", operator("relax.nn.pad", 1), _constant_padding)


def _tuple_of_float32(match: Match) -> Verdict:
    ty = match.annotated["arg0"].ty
    for field in getattr(ty, "fields", ()):
        if not isinstance(field, relax.TensorType) or str(field.dtype) != "float32":
            return Verdict.no(f"an operand has type {field}; only float32 is supported")
    return Verdict.yes()


def _unit_steps(match: Match) -> Verdict:
    args = call_of(match).args
    steps = [int(step) for step in args[4].fields] if len(args) > 4 else []
    if any(step != 1 for step in steps):
        return Verdict.no(f"steps {steps} are not all 1")
    return Verdict.yes()


def _constant_padding(match: Match) -> Verdict:
    attrs = call_of(match).attrs
    if str(attrs.pad_mode) != "constant":
        return Verdict.no(f"padding is {attrs.pad_mode}, not constant")
    if any(int(width) < 0 for width in attrs.pad_width):
        return Verdict.no(f"negative padding {list(attrs.pad_width)}")
    return Verdict.yes()
