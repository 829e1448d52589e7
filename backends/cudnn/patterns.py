"""What cuDNN can run, as pattern triples.

The predicates derive the very graph that code generation will, so a reason they give is one that
cuDNN or its manual gives.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator

from tvm import relax
from tvm.relax.dpl import DFPattern, is_const, is_op, wildcard

from collage.backends.contract import Match, PatternTriple, Predicate
from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.cudnn.graphs import (
    CONVOLUTIONS,
    Attention,
    Epilogue,
    activation_of,
    attention_graph,
    attention_of_chain,
    attention_of_operator,
    convolution_graph,
    matmul_graph,
    norm_graph,
    pool_graph,
    softmax_graph,
)
from collage.backends.cudnn.options import CudnnOptions
from collage.backends.cudnn.problem import Graph
from collage.backends.relax.calls.pooling import SPATIAL
from collage.backends.relax.patterns import (
    Chain,
    all_of,
    derives,
    operator,
    residual_same_shape,
    with_activation,
    with_bias,
    with_residual,
)
from collage.backends.relax.static_shape import static_shape

ACTIVATIONS = ("sigmoid", "tanh", "gelu", "gelu_tanh", "silu", "clip", "leakyrelu", "relu")
"""Activations by their names in ``backends.patterns``, by rising priority."""

_WRONG_AFTER_PRODUCT = ("clip", "leakyrelu")
"""ReLUs with a bound or a slope, which cuDNN computes wrongly of a bare product in half precision.

Seen with 9.19 and 9.28 on Hopper. With a bias, and after convolutions, they are right.
"""

_AFTER_RESIDUAL = ("silu", "clip", "leakyrelu", "relu")
"""Activations that networks put behind a residual addition."""


def pattern_table(options: CudnnOptions, compute_capability: int) -> list[PatternTriple]:
    """The pattern triples, by rising priority.

    Parameters
    ----------
    options : CudnnOptions
        They are read by the predicates, such as whether TF32 is allowed.
    compute_capability : int
        Of the device, for example 90.

    Returns
    -------
    list[PatternTriple]
        Named ``cudnn.`` and the operators; chains come after the operators that they begin with.
    """
    return [
        *_single(),
        *_matmul(options),
        *(triple for name in CONVOLUTIONS for triple in _convolution(name, options)),
        *_attention_chain(compute_capability),
        *_attention_operator(compute_capability),
    ]


def _triple(name: str, chain: Chain, *predicates: Predicate) -> PatternTriple:
    return PatternTriple(
        f"cudnn.{name}", chain.pattern, all_of(*predicates), dict(chain.annotations)
    )


def _root(match: Match) -> relax.Call:
    call = match.annotated["root"]
    assert isinstance(call, relax.Call)
    return call


def _single() -> Iterator[PatternTriple]:
    for name, operands, derive in (
        *((f"{kind}_pool{rank}d", 1, pool_graph) for kind in ("max", "avg") for rank in SPATIAL),
        ("softmax", 1, softmax_graph),
        ("layer_norm", 3, norm_graph),
        ("rms_norm", 2, norm_graph),
    ):
        chain = operator(f"relax.nn.{name}", operands)
        yield _triple(name, chain, derives(functools.partial(_of_root, derive)))


def _of_root(derive: Callable[[relax.Call], Graph], match: Match) -> Graph:
    return derive(_root(match))


def _matmul(options: CudnnOptions) -> Iterator[PatternTriple]:
    check = _contraction(matmul_graph, options)
    base = operator("relax.matmul", 2)
    yield _triple("matmul", base, check)
    for activation in ACTIVATIONS:
        if activation not in _WRONG_AFTER_PRODUCT:
            yield _triple(f"matmul_{activation}", with_activation(base, activation), check)
    yield _triple("matmul_bias", with_bias(base), check)
    for activation in ACTIVATIONS:
        chain = with_activation(with_bias(base), activation)
        yield _triple(f"matmul_bias_{activation}", chain, check)


def _convolution(name: str, options: CudnnOptions) -> Iterator[PatternTriple]:
    check = _contraction(convolution_graph, options)
    base = operator(f"relax.nn.{name}", 2)
    biased = with_bias(base)
    yield from _with_activations(name, base, check)
    # Networks add to what comes from a convolution, not to what a transposed one has made larger.
    if not name.endswith("_transpose"):
        yield from _with_residual(f"{name}_add", with_residual(base), check)
    yield from _with_activations(f"{name}_bias", biased, check)
    if not name.endswith("_transpose"):
        yield from _with_residual(f"{name}_bias_add", with_residual(biased), check)


def _with_activations(name: str, chain: Chain, check: Predicate) -> Iterator[PatternTriple]:
    yield _triple(name, chain, check)
    for activation in ACTIVATIONS:
        yield _triple(f"{name}_{activation}", with_activation(chain, activation), check)


def _with_residual(name: str, added: Chain, check: Predicate) -> Iterator[PatternTriple]:
    yield _triple(name, added, residual_same_shape, check)
    for activation in _AFTER_RESIDUAL:
        chain = with_activation(added, activation)
        yield _triple(f"{name}_{activation}", chain, residual_same_shape, check)


def _contraction(
    derive: Callable[[relax.Call, Epilogue, CudnnOptions], Graph], options: CudnnOptions
) -> Predicate:
    def graph(match: Match) -> Graph:
        named = match.annotated
        root = _root(match)
        epilogue = Epilogue(
            static_shape(named["bias"], "the bias") if "bias" in named else None,
            static_shape(named["residual"], "the residual") if "residual" in named else None,
            None if match.root.same_as(root) else activation_of(match.root),
        )
        for name in ("bias", "residual"):
            if name in named and str(named[name].ty.dtype) != str(root.ty.dtype):
                raise UnsupportedProblemError(
                    f"the {name} has dtype {named[name].ty.dtype}, the result {root.ty.dtype}"
                )
        return derive(root, epilogue, options)

    return derives(graph)


def _attention_operator(compute_capability: int) -> Iterator[PatternTriple]:
    for biased, inputs, output in itertools.product((False, True), repeat=3):
        operands = {name: _permuted(inputs) for name in ("query", "key", "value")}
        args = list(operands.values()) + ([wildcard()] if biased else [])
        call = is_op(f"relax.nn.attention{'_bias' if biased else ''}")(*args)
        pattern = is_op("relax.permute_dims")(call) if output else call

        name = "attention" + "_bias" * biased + "_permuted" * inputs + "_out" * output
        yield _triple(
            name,
            Chain(pattern, {"root": call, **operands}),
            derives(lambda match: attention_graph(_operator_of(match), compute_capability)),
        )


def _operator_of(match: Match) -> Attention:
    query, key, value = (match.annotated[name] for name in ("query", "key", "value"))
    return attention_of_operator(_root(match), (query, key, value), match.root)


def _attention_chain(compute_capability: int) -> Iterator[PatternTriple]:
    for masked, scaled, inputs, output in itertools.product((False, True), repeat=4):
        named: dict[str, DFPattern] = {
            "query": _permuted(inputs),
            "key": _permuted(True),
            "value": _permuted(inputs),
        }
        scores = is_op("relax.matmul")(named["query"], named["key"])
        if scaled:
            named["scale"] = is_const()
            scores = is_op("relax.multiply")(scores, named["scale"]) | is_op("relax.divide")(
                scores, named["scale"]
            )
            named["scaled"] = scores
        if masked:
            named["bias"] = wildcard()
            scores = is_op("relax.add")(scores, named["bias"])
        named["softmax"] = is_op("relax.nn.softmax")(scores)
        pattern = is_op("relax.matmul")(named["softmax"], named["value"])
        if output:
            pattern = is_op("relax.permute_dims")(pattern)
        name = "attention_chain" + "_scaled" * scaled + "_masked" * masked
        name += "_permuted" * inputs + "_out" * output
        yield _triple(
            name,
            Chain(pattern, named),
            derives(lambda match: attention_graph(_chain_of(match), compute_capability)),
        )


def _chain_of(match: Match) -> Attention:
    named = match.annotated
    softmax = named["softmax"]
    assert isinstance(softmax, relax.Call)
    check_softmax(softmax)
    scale = 1.0
    if "scale" in named:
        scaled = named["scaled"]
        assert isinstance(scaled, relax.Call)
        scale = scale_of(scaled, named["scale"])
    operands = (named["query"], named["key"], named["value"])
    return attention_of_chain(operands, scale, named.get("bias"), match.root)


def check_softmax(softmax: relax.Call) -> None:
    """Check that an attention's softmax is over its keys.

    Raises
    ------
    UnsupportedProblemError
        When it is over another axis.
    """
    rank = len(static_shape(softmax, "the scores"))
    if int(softmax.attrs.axis) not in (-1, rank - 1):
        raise UnsupportedProblemError(f"softmax over axis {int(softmax.attrs.axis)}, not the last")


def scale_of(call: relax.Call, constant: relax.Expr) -> float:
    """The number that a call multiplies by, or one over that which it divides by.

    Parameters
    ----------
    call : relax.Call
        A product or a quotient.
    constant : relax.Expr
        Its operand, of one element.

    Returns
    -------
    float
        What scores are multiplied by, in double precision.

    Raises
    ------
    UnsupportedProblemError
        When the constant has several elements, or is zero and divides.
    """
    values = constant.value.numpy().reshape(-1)
    if values.size != 1:
        raise UnsupportedProblemError(f"the scores are scaled by {values.size} numbers, not one")
    number = float(values[0])
    if str(call.op.name) == "relax.multiply":
        return number
    if number == 0.0:
        raise UnsupportedProblemError("the scores are divided by zero")
    return 1.0 / number


def _permuted(permuted: bool) -> DFPattern:
    return is_op("relax.permute_dims")(wildcard()) if permuted else wildcard()
