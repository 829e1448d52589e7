"""What OpenBLAS can run: matrix products, alone or with what BLAS absorbs.

Bias and activation are fused as an epilogue; ``permute_dims`` on the operands or the result become
transpose flags and leading dimensions. The predicates ask the same planner that generates code.
"""

from __future__ import annotations

from tvm.relax.dpl import is_op, wildcard

from collage.backends.contract import Match, PatternTriple, Predicate, Verdict
from collage.backends.openblas.options import OpenBLASOptions
from collage.backends.openblas.problem import Problem, plan
from collage.backends.relax.calls.strided_views import matmul_views, operand_view, result_view
from collage.backends.relax.patterns import (
    Chain,
    all_of,
    bias_per_channel,
    derives,
    float32_tensors,
    permuted_matmuls,
    with_activation,
    with_bias,
)
from collage.backends.relax.static_shape import tensor_shape

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "tanh", "sigmoid")
"""Activations of the runtime's epilogue, by their names in ``backends.patterns``."""


def pattern_table(options: OpenBLASOptions) -> list[PatternTriple]:
    """The pattern triples, by rising priority."""
    triples = [_triple("openblas.matmul", _matmul())]
    if options.permutations:
        for what, chain in permuted_matmuls(("lhs", "rhs")):
            triples.append(_triple(f"openblas.matmul_{what}", chain))
    if options.epilogues:
        for activation in ACTIVATIONS:
            chain = with_activation(_matmul(), activation)
            triples.append(_triple(f"openblas.matmul_{activation}", chain))
        triples.append(_triple("openblas.matmul_bias", with_bias(_matmul()), _bias_of_matmul))
        for activation in ACTIVATIONS:
            chain = with_activation(with_bias(_matmul()), activation)
            triples.append(_triple(f"openblas.matmul_bias_{activation}", chain, _bias_of_matmul))
    return triples


def _matmul() -> Chain:
    left, right = wildcard(), wildcard()
    return Chain(is_op("relax.matmul")(left, right), {"lhs": left, "rhs": right})


def _triple(name: str, chain: Chain, *more: Predicate) -> PatternTriple:
    predicate = all_of(float32_tensors, *more, derives(_problem))
    return PatternTriple(name, chain.pattern, predicate, chain.annotations)


def _bias_of_matmul(match: Match) -> Verdict:
    rhs = tensor_shape(match.annotated["rhs"])
    if rhs is not None and len(rhs) == 1:
        return Verdict.no("the right operand is a vector, so the bias is not one value per column")
    return bias_per_channel(-1)(match)


def _problem(match: Match) -> Problem:
    lhs, rhs = (operand_view(match.annotated[name]) for name in ("lhs", "rhs"))
    return plan(*matmul_views(lhs, rhs, result_view(match.root)))
