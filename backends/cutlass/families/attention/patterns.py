"""What of the graph the attention kernel takes: Relax's attention, and the chain of its parts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.relax.dpl import DFPattern, is_const, is_op, is_tuple_get_item, wildcard

from collage.backends.contract import Match, PatternTriple, Predicate, Verdict
from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.cutlass.families._base import DTYPE_BITS
from collage.backends.cutlass.families.attention.problem import (
    AttentionProblem,
    Strides,
    bhsd,
    bias_strides,
    check,
    read_attention,
    read_joined,
)
from collage.backends.relax.calls.layouts import permutation
from collage.backends.relax.calls.strided_views import View
from collage.backends.relax.patterns import derives, either_order, operator
from collage.backends.relax.static_shape import tensor_dtype, tensor_shape

PREFIX = "attention"
JOINED = "of_parts"
"""Ends the names of composites whose q, k and v are parts of one tensor."""


@dataclass(frozen=True)
class ChainForm:
    """How a chain ``softmax(scaled(q @ permuted(k)) + mask) @ v`` is written.

    Attributes
    ----------
    scaling : str
        ``multiply`` or ``divide`` by one constant number, or nothing.
    mask : bool
        Something is added to the scores.
    """

    scaling: str
    mask: bool

    @property
    def name(self) -> str:
        words = [PREFIX, "chain", self.scaling, "mask" if self.mask else ""]
        return "cutlass." + "_".join(word for word in words if word)


FORMS = tuple(
    ChainForm(*form) for form in itertools.product(("", "multiply", "divide"), (False, True))
)


def pattern_table(*, hopper: bool) -> list[PatternTriple]:
    """The pattern triples, by rising priority.

    Parameters
    ----------
    hopper : bool
        Whether Hopper's kernel may run what they match.

    Returns
    -------
    list of PatternTriple
        Chains, calls, and calls of the parts of one tensor.
    """
    return [*_chains(hopper), *_calls(hopper), *_joined(hopper)]


def _calls(hopper: bool) -> Iterator[PatternTriple]:
    for name, operands in (("attention", 3), ("attention_bias", 4)):
        chain = operator(f"relax.nn.{name}", operands)
        yield PatternTriple(f"cutlass.{name}", chain.pattern, _call_fits(hopper), chain.annotations)


def _call_fits(hopper: bool) -> Predicate:
    def fits(match: Match) -> Verdict:
        call, split = match.annotated["root"], match.annotated.get("split")
        assert isinstance(call, relax.Call)
        bias = call.args[3] if len(call.args) > 3 else None
        if isinstance(bias, tvm.ir.GenericConst) and math.prod(tensor_shape(bias) or (1,)) == 1:
            return Verdict.no("a bias of one element is not passed as a tensor")
        if isinstance(split, relax.Call):
            return derives(lambda _: read_joined(call, split, hopper=hopper))(match)
        return derives(lambda _: read_attention(call, hopper=hopper))(match)

    return fits


def _joined(hopper: bool) -> Iterator[PatternTriple]:
    """Attention of three parts of one tensor, which the kernel reads without cutting it up."""
    for name, bias in (("attention", False), ("attention_bias", True)):
        source = wildcard()
        split = is_op("relax.split")(source)
        operands = [
            is_op("relax.reshape")(is_tuple_get_item(split, part), wildcard()) for part in range(3)
        ]
        if bias:
            operands.append(wildcard())
        root = is_op(f"relax.nn.{name}")(*operands)
        named = {"root": root, "split": split, "source": source}
        yield PatternTriple(f"cutlass.{name}_{JOINED}", root, _call_fits(hopper), named)


def _chains(hopper: bool) -> Iterator[PatternTriple]:
    for form in FORMS:
        named: dict[str, DFPattern] = {"q": wildcard(), "v": wildcard()}
        source = wildcard()
        keys = is_op("relax.permute_dims")(source)
        scores = is_op("relax.matmul")(named["q"], keys)
        named |= {"k": source, "permuted": keys, "scores": scores}
        if form.scaling:
            factor = named["factor"] = is_const()
            scaled = is_op("relax.divide")(scores, factor)
            if form.scaling == "multiply":
                scaled = either_order("relax.multiply", scores, factor)
            scores = scaled
        if form.mask:
            named["mask"] = wildcard()
            scores = either_order("relax.add", scores, named["mask"])
        weights = named["softmax"] = is_op("relax.nn.softmax")(scores)
        root = is_op("relax.matmul")(weights, named["v"])
        yield PatternTriple(form.name, root, _chain_fits(form, hopper), named)


def _chain_fits(form: ChainForm, hopper: bool) -> Predicate:
    return derives(lambda match: read_chain(form, match.annotated, match.root, hopper=hopper))


def read_chain(
    form: ChainForm,
    parts: Mapping[str, relax.Expr],
    root: relax.Expr,
    *,
    hopper: bool = False,
) -> AttentionProblem:
    """The problem of a chain.

    Parameters
    ----------
    form : ChainForm
        How the chain is written: whether the scores are scaled and masked.
    parts : mapping of str to relax.Expr
        ``q``, ``k`` (before it is permuted), ``permuted``, ``scores``, ``softmax``, ``v``, and
        where the form has them ``factor`` and ``mask``.
    root : relax.Expr
        The result.
    hopper : bool
        Whether Hopper's kernel may run it, which takes more.

    Returns
    -------
    AttentionProblem
        A chain of three axes has one batch, and heads along its first axis.

    Raises
    ------
    UnsupportedProblemError
        When the kernel cannot run it.
    """
    q, k, v = (tensor_shape(parts[name]) for name in ("q", "k", "v"))
    scores, result = tensor_shape(parts["scores"]), tensor_shape(root)
    if q is None or k is None or v is None or scores is None or result is None:
        raise UnsupportedProblemError("an operand has no static shape")
    if 0 in (*q, *k, *v):
        raise UnsupportedProblemError(f"an operand is empty: {q}, {k}, {v}")
    rank = len(scores)
    if rank not in (3, 4) or {len(q), len(k), len(v)} != {rank} or q[:-2] != v[:-2]:
        raise UnsupportedProblemError(f"operands of shapes {q}, {k}, {v}")
    dtypes = {tensor_dtype(expr) for name, expr in parts.items() if name != "factor"}
    dtype = tensor_dtype(root)
    if dtypes != {dtype} or dtype not in DTYPE_BITS:
        raise UnsupportedProblemError(f"dtypes {sorted(dtypes)}")
    softmax = parts["softmax"]
    assert isinstance(softmax, relax.Call)
    if int(softmax.attrs.axis) % rank != rank - 1:
        raise UnsupportedProblemError(f"softmax over axis {int(softmax.attrs.axis)}")
    lead = (1,) * (4 - rank)
    (batch, heads, queries, dim), (_, _, keys, dim_value) = lead + q, lead + v
    problem = AttentionProblem(
        *(batch, heads, queries, keys, dim, dim_value, dtype),
        scale=_scale(form, parts),
        q=bhsd(lead + q),
        k=_key_strides(parts["permuted"], lead + k, (batch, heads, keys, dim)),
        v=bhsd(lead + v),
        layout="bhsd",
        bias=bias_strides(parts["mask"], batch, heads, queries, keys)
        if form.mask
        else Strides(0, 0, 0),
        has_bias=form.mask,
    )
    check(problem, hopper=hopper)
    return problem


def _scale(form: ChainForm, parts: Mapping[str, relax.Expr]) -> float:
    if not form.scaling:
        return 1.0
    factor = parts["factor"]
    if not isinstance(factor, tvm.ir.GenericConst) or factor.value.numpy().size != 1:
        raise UnsupportedProblemError("the scores are not scaled by one number")
    number = float(factor.value.numpy().astype("float64").reshape(-1)[0])
    if form.scaling == "multiply":
        return number
    if number == 0:
        raise UnsupportedProblemError("the scores are divided by zero")
    return 1 / number


def _key_strides(permuted: relax.Expr, source: tuple[int, ...], wanted: tuple[int, ...]) -> Strides:
    """Strides of keys that ``permute_dims`` turns to (batch, head, element, sequence)."""
    assert isinstance(permuted, relax.Call)
    rank = len(tensor_shape(permuted) or ())
    # A missing head or batch stays in front.
    lead = 4 - rank
    axes = [*range(lead), *(axis + lead for axis in permutation(permuted) or ())]
    view = View.dense(source).permuted(axes)
    batch, heads, keys, dim = wanted
    if view.shape != (batch, heads, dim, keys) or (view.strides[2] != 1 and dim != 1):
        raise UnsupportedProblemError(
            f"keys of shape {source} permuted by {axes}: their last axis must be a head's elements"
        )
    return Strides(row=view.strides[3], head=view.strides[1], batch=view.strides[0])
