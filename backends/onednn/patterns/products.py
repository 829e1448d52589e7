"""Convolutions and products of matrices, with what the library fuses behind them."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import tvm
from tvm import relax

from collage.backends.contract import Match, PatternTriple, Predicate, Verdict
from collage.backends.onednn.patterns._base import call_of, channels_first, triple
from collage.backends.relax.patterns import (
    bias_per_channel,
    operator,
    residual_same_shape,
    with_activation,
    with_bias,
    with_residual,
)
from collage.backends.relax.static_shape import tensor_shape

_CHAINS = (
    "sigmoid", "tanh", "leakyrelu", "hardsigmoid", "gelu", "gelu_tanh", "silu", "hardswish",
    "clip", "relu",
)  # fmt: skip
"""Activations that end a fused chain, in rising priority."""


COMMON = ("tanh", "leakyrelu", "gelu", "silu", "relu")
"""Those of them that end convolutions of every kind."""


def chains() -> Iterator[PatternTriple]:
    """Triples of products, alone and with what is fused behind them."""
    yield from _all_chains("matmul", "relax.matmul", -1, _matmul)
    for rank in (1, 2, 3):
        for suffix, check in (("", _convolution), ("_transpose", _transposed)):
            name, checks = f"conv{rank}d{suffix}", (channels_first, check)
            # Weights may be computed, as a generator's or a tracker's are: they are brought into
            # the library's layout in each call.
            if name == "conv2d":
                yield from _all_chains(name, f"relax.nn.{name}", -3, *checks)
                continue
            # The others are rarer; what stands behind their chains joins them in a region.
            base = functools.partial(operator, f"relax.nn.{name}", 2)
            bias = bias_per_channel(-rank - 1)
            yield triple(name, base(), *checks)
            yield triple(f"{name}_bias", with_bias(base()), *checks, bias)
            for activation in COMMON:
                yield triple(f"{name}_{activation}", with_activation(base(), activation), *checks)
                chain = with_activation(with_bias(base()), activation)
                yield triple(f"{name}_bias_{activation}", chain, *checks, bias)


def _all_chains(
    name: str, operation: str, axis: int, *predicates: Predicate
) -> Iterator[PatternTriple]:
    bias = bias_per_channel(axis)
    base = functools.partial(operator, operation, 2)
    yield triple(name, base(), *predicates)
    for activation in _CHAINS:
        yield triple(f"{name}_{activation}", with_activation(base(), activation), *predicates)
    biased = [*predicates, bias]
    yield triple(f"{name}_add", with_residual(base()), *predicates, residual_same_shape)
    yield triple(f"{name}_bias", with_bias(base()), *biased)
    for activation in _CHAINS:
        chain = with_activation(with_bias(base()), activation)
        yield triple(f"{name}_bias_{activation}", chain, *biased)
    added = [*biased, residual_same_shape]
    yield triple(f"{name}_bias_add", with_residual(with_bias(base())), *added)
    for activation in ("clip", "relu"):
        chain = with_activation(with_residual(with_bias(base())), activation)
        yield triple(f"{name}_bias_add_{activation}", chain, *added)


def _matmul(match: Match) -> Verdict:
    call = call_of(match)
    shapes = [tensor_shape(arg) for arg in call.args]
    if any(shape is None or len(shape) < 2 for shape in shapes):
        return Verdict.no(f"operands of shapes {shapes}; at least two dimensions are needed")
    return Verdict.yes()


def _convolution(match: Match) -> Verdict:
    return _weights_and_padding(match, ("OIW", "OIHW", "OIDHW"))


def _transposed(match: Match) -> Verdict:
    return _weights_and_padding(match, ("IOW", "IOHW", "IODHW"))


def _weights_and_padding(match: Match, layouts: tuple[str, ...]) -> Verdict:
    attrs = call_of(match).attrs
    if str(attrs.kernel_layout) not in layouts:
        return Verdict.no(f"weights are laid out {attrs.kernel_layout}, not {' or '.join(layouts)}")
    if any(int(width) < 0 for width in attrs.padding):
        return Verdict.no(f"negative padding {list(attrs.padding)}")
    return Verdict.yes()


def multiplies(operator: relax.Expr) -> bool:
    """Whether an operator is a convolution or a product of matrices.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((4, 4), "float32"))
    >>> multiplies(relax.op.matmul(x, x)), multiplies(relax.op.add(x, x))
    (True, False)
    """
    if not isinstance(operator, relax.Call) or not isinstance(operator.op, tvm.ir.Op):
        return False
    name = str(operator.op.name)
    return name == "relax.matmul" or name.startswith("relax.nn.conv")
