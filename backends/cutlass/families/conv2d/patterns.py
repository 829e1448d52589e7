"""What of the graph the convolution kernels take: a convolution and the epilogues they fuse."""

from __future__ import annotations

import math
from collections.abc import Iterator

import tvm
from tvm import relax

from collage.backends.contract import Match, PatternTriple, Predicate, Verdict
from collage.backends.cutlass.families.conv2d.problem import (
    ACTIVATIONS,
    RESIDUALS,
    Epilogue,
    check_epilogue,
    read_problem,
)
from collage.backends.cutlass.families.epilogue_patterns import (
    with_checked_activation,
    with_joined_residual,
)
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.relax.patterns import (
    all_of,
    derives,
    operator,
    residual_same_shape,
    with_bias,
)
from collage.backends.relax.static_shape import tensor_dtype, tensor_shape

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
        chain, check = with_checked_activation(chain, epilogue.activation)
        predicates.append(check)
    chain = with_joined_residual(chain, epilogue.residual)
    if epilogue.residual:
        predicates += [residual_same_shape, _residual_dtype]
    if epilogue.final:
        chain, check = with_checked_activation(chain, epilogue.final)
        predicates.append(check)
    return PatternTriple(
        composite_name(epilogue), chain.pattern, all_of(*predicates), dict(chain.annotations)
    )


def _fits(epilogue: Epilogue, options: CutlassOptions) -> Predicate:
    def check(match: Match) -> None:
        call = match.annotated["root"]
        assert isinstance(call, relax.Call)
        check_epilogue(read_problem(call, options), epilogue)

    return derives(check)


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
