"""What of the graph the convolution kernels take: a convolution and the epilogues they fuse."""

from __future__ import annotations

import math
from collections.abc import Iterator

import tvm
from tvm import relax
from tvm.relax.dpl import is_const, is_op, wildcard

from collage.backends.base import Match, PatternTriple, Predicate, Verdict
from collage.backends.cutlass.conv2d_problem import (
    ACTIVATIONS,
    RESIDUALS,
    Epilogue,
    UnsupportedConvolutionError,
    check_epilogue,
    read_problem,
)
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.patterns import (
    Chain,
    all_of,
    either_order,
    operator,
    residual_same_shape,
    tensor_dtype,
    tensor_shape,
    with_activation,
    with_bias,
    with_residual,
)

PREFIX = "conv2d"


def epilogues() -> Iterator[Epilogue]:
    """Every fused epilogue, by rising priority: longer chains go before what they contain.

    The chains that networks have: each one more is kernels to compile.
    """
    yield Epilogue()
    yield Epilogue(activation="relu")
    yield Epilogue(bias=True)
    for activation in ACTIVATIONS:
        yield Epilogue(bias=True, activation=activation)
    for residual in RESIDUALS:
        yield Epilogue(bias=True, residual=residual)
    yield Epilogue(bias=True, activation="silu", residual="add")
    yield Epilogue(bias=True, residual="add", final="relu")


def composite_name(epilogue: Epilogue) -> str:
    """The name of the triple and of its composites, for example ``cutlass.conv2d_bias_relu``."""
    return f"cutlass.{PREFIX}" if epilogue == Epilogue() else f"cutlass.{PREFIX}_{epilogue.name}"


def pattern_table(options: CutlassOptions) -> list[PatternTriple]:
    """The pattern triples, by rising priority."""
    return [_triple(epilogue, options) for epilogue in epilogues()]


def _triple(epilogue: Epilogue, options: CutlassOptions) -> PatternTriple:
    chain = operator("relax.nn.conv2d", 2)
    predicates = [_fits(epilogue, options)]
    if epilogue.bias:
        chain = with_bias(chain)
        predicates.append(_bias_per_channel)
    if epilogue.activation:
        chain, check = _activated(chain, epilogue.activation)
        predicates.append(check)
    if epilogue.residual == "add":
        chain = with_residual(chain)
    elif epilogue.residual == "multiply":
        residual = wildcard()
        joined = either_order("relax.multiply", chain.pattern, residual)
        chain = chain.then(joined, residual=residual)
    if epilogue.residual:
        predicates += [residual_same_shape, _residual_dtype]
    if epilogue.final:
        chain, check = _activated(chain, epilogue.final)
        predicates.append(check)
    return PatternTriple(
        composite_name(epilogue), chain.pattern, all_of(*predicates), dict(chain.annotations)
    )


def _accept(_: Match) -> Verdict:
    return Verdict.yes()


def _activated(chain: Chain, activation: str) -> tuple[Chain, Predicate]:
    """The chain with an activation, and a check of the numbers that make it this activation."""
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


def _numbers(meaning: str, **wanted: float) -> Predicate:
    def check(match: Match) -> Verdict:
        for name, value in wanted.items():
            given = number_of(match.annotated[name])
            # Half types hold 1/6 to three digits.
            if given is None or not math.isclose(given, value, rel_tol=5e-3, abs_tol=1e-6):
                shown = "no number" if given is None else f"{given:g}"
                return Verdict.no(f"{name} is {shown}, not {value:g}: {meaning}")
        return Verdict.yes()

    return check


def number_of(expr: relax.Expr) -> float | None:
    """The value of a one-element constant or of a number, or None for anything else."""
    if isinstance(expr, tvm.ir.GenericConst):
        array = expr.value.numpy()
        return float(array.reshape(-1)[0]) if array.size == 1 else None
    value = getattr(expr, "value", expr)
    value = getattr(value, "value", value)
    return float(value) if isinstance(value, int | float) else None


def _fits(epilogue: Epilogue, options: CutlassOptions) -> Predicate:
    def check(match: Match) -> Verdict:
        call = match.annotated["root"]
        assert isinstance(call, relax.Call)
        try:
            check_epilogue(read_problem(call, options), epilogue)
        except UnsupportedConvolutionError as err:
            return Verdict.no(str(err))
        return Verdict.yes()

    return check


def _bias_per_channel(match: Match) -> Verdict:
    bias, result = match.annotated["bias"], tensor_shape(match.annotated["root"])
    shape = tensor_shape(bias)
    if shape is None or result is None:
        return Verdict.no("the bias or the result has no static shape")
    if len(shape) > 4 or not shape or shape[-1] != result[3] or math.prod(shape) != result[3]:
        return Verdict.no(f"bias of shape {shape} is not one value per channel of {result}")
    if tensor_dtype(bias) != tensor_dtype(match.root):
        return Verdict.no(f"bias has dtype {tensor_dtype(bias)}, not {tensor_dtype(match.root)}")
    return Verdict.yes()


def _residual_dtype(match: Match) -> Verdict:
    residual = tensor_dtype(match.annotated["residual"])
    if residual != tensor_dtype(match.root):
        return Verdict.no(f"residual has dtype {residual}, not {tensor_dtype(match.root)}")
    if isinstance(match.annotated["residual"], tvm.ir.GenericConst):
        count = math.prod(tensor_shape(match.annotated["residual"]) or (1,))
        if count == 1:
            return Verdict.no("a residual of one element is not passed as a tensor")
    return Verdict.yes()
