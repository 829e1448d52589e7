"""Attention as one cuDNN graph: the operator, or the chain of products and a softmax."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm import relax

from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.cudnn.graphs.epilogue import same_dtype
from collage.backends.cudnn.problem import (
    Causal,
    Graph,
    GraphBuilder,
    Kind,
)
from collage.backends.relax.calls.strided_views import View, operand_view, result_view
from collage.backends.relax.static_shape import static_shape

HEADS_FIRST = (0, 2, 1, 3)
"""Axes that turn (batch, length, heads, width) to (batch, heads, length, width) and back."""

_CAUSAL = {"None": Causal.NONE, "TopLeft": Causal.TOP_LEFT, "BottomRight": Causal.BOTTOM_RIGHT}


@dataclass(frozen=True)
class Attention:
    """An attention; the views are (batch, heads, length, width).

    Attributes
    ----------
    bias : tuple of int, optional
        Shape of what is added to the scores.

    Examples
    --------
    >>> head = View.dense((1, 2, 16, 64))
    >>> Attention("float16", head, head, head, head, scale=0.125).causal.name
    'NONE'
    """

    dtype: str
    query: View
    key: View
    value: View
    result: View
    scale: float
    causal: Causal = Causal.NONE
    bias: tuple[int, ...] | None = None


def attention_graph(attention: Attention, compute_capability: int) -> Graph:
    """The graph of an attention. Slots: query, key, value, [bias,] result.

    Parameters
    ----------
    attention : Attention
        In float16 or bfloat16, with heads of a multiple of 8 elements that are adjacent in memory.
    compute_capability : int
        Of the device, for example 90; decides how wide a head may be.

    Returns
    -------
    Graph
        One operation; a bias is viewed as (batch or 1, heads or 1, queries or 1, keys).

    Raises
    ------
    UnsupportedProblemError
        When cuDNN's fused attention cannot run it; see "Attention" in the manual of its frontend.

    Examples
    --------
    >>> heads = relax.Var("x", relax.TensorType((1, 16, 2, 64), "float16"))
    >>> call = relax.BlockBuilder().normalize(relax.op.nn.attention(heads, heads, heads))
    >>> attention_graph(attention_of_operator(call, (heads, heads, heads), call), 90).name
    'attention float16 1x2x16x64 1x2x16x64 1x2x16x64 1x2x16x64'
    """
    query, key, value = attention.query, attention.key, attention.value
    if attention.dtype == "float32":
        raise UnsupportedProblemError("fused attention is for float16 and bfloat16, not float32")
    if any(len(view.shape) != 4 for view in (query, key, value, attention.result)):
        raise UnsupportedProblemError("an operand does not have four dimensions")
    batch, heads, length, width = query.shape
    if key.shape[:2] != (batch, heads) or value.shape[:2] != (batch, heads):
        raise UnsupportedProblemError(
            f"batch and heads differ: {query.shape}, {key.shape}, {value.shape}"
        )
    for view in (query, key, value, attention.result):
        if view.strides[3] != 1:
            raise UnsupportedProblemError("the elements of a head are not adjacent in memory")
        if any(stride % 8 for stride in view.strides[:3]):
            raise UnsupportedProblemError(f"strides {view.strides} are not multiples of 8")
    widest = 256 if compute_capability >= 90 else 128
    for size in (width, value.shape[3]):
        if size % 8 or size > widest:
            raise UnsupportedProblemError(
                f"heads of {size} elements; only multiples of 8 up to {widest} are supported"
            )
    if attention.causal is Causal.BOTTOM_RIGHT:
        if attention.bias is not None:
            raise UnsupportedProblemError("a mask to the bottom right excludes a bias")
        if length > key.shape[2]:
            raise UnsupportedProblemError(
                f"a mask to the bottom right needs more keys than queries: {length} queries, "
                f"{key.shape[2]} keys"
            )
    builder = GraphBuilder(attention.dtype)
    inputs = [builder.input(view) for view in (query, key, value)]
    if attention.bias is not None:
        inputs.append(builder.input(_bias_view(attention.bias, query.shape, key.shape[2])))
    builder.apply(
        Kind.ATTENTION, inputs, attention.result, [int(attention.causal)], [attention.scale]
    )
    return builder.finish()


def _bias_view(shape: tuple[int, ...], query: tuple[int, ...], keys: int) -> View:
    batch, heads, length, _ = query
    padded = (1,) * (4 - len(shape)) + shape
    if (
        len(padded) != 4
        or padded[0] not in (1, batch)
        or padded[1] not in (1, heads)
        or padded[2] not in (1, length)
        or padded[3] != keys
    ):
        raise UnsupportedProblemError(
            f"bias of shape {shape}; only ({batch} or 1, {heads} or 1, {length} or 1, {keys})"
        )
    return View.dense(padded)


def attention_of_operator(
    call: relax.Call, operands: tuple[relax.Expr, relax.Expr, relax.Expr], root: relax.Expr
) -> Attention:
    """What a call of ``relax.nn.attention`` computes.

    Parameters
    ----------
    call : relax.Call
        Of ``relax.nn.attention`` or ``relax.nn.attention_bias``.
    operands : tuple of relax.Expr
        Query, key and value, (batch, length, heads, width); a ``permute_dims`` is folded.
    root : relax.Expr
        The call, or a ``permute_dims`` of it.

    Returns
    -------
    Attention
        Its views are (batch, heads, length, width); a scale that the call leaves out is ``1 /
        sqrt(width)``.

    Raises
    ------
    UnsupportedProblemError
        When it has a window, or a bias or dtype that cuDNN does not take.

    Examples
    --------
    >>> heads = relax.Var("x", relax.TensorType((1, 16, 2, 64), "float16"))
    >>> call = relax.BlockBuilder().normalize(relax.op.nn.attention(heads, heads, heads))
    >>> attention_of_operator(call, (heads, heads, heads), call).query.shape
    (1, 2, 16, 64)
    """
    attrs = call.attrs
    if attrs.window_size is not None:
        raise UnsupportedProblemError("sliding windows are not supported")
    query, key, value = (_heads_first(operand_view(operand)) for operand in operands)
    result = _heads_first(_result(root))
    width = query.shape[3]
    scale = 1.0 / math.sqrt(width) if attrs.scale is None else float(attrs.scale.value)
    bias = static_shape(call.args[3], "the bias") if len(call.args) > 3 else None
    dtype, causal = same_dtype(*call.args, call), _CAUSAL[str(attrs.causal_mask)]
    return Attention(dtype, query, key, value, result, scale, causal, bias)


def attention_of_chain(
    operands: tuple[relax.Expr, relax.Expr, relax.Expr],
    scale: float,
    bias: relax.Expr | None,
    root: relax.Expr,
) -> Attention:
    """What ``softmax(query @ key * scale + bias) @ value`` computes.

    Parameters
    ----------
    operands : tuple of relax.Expr
        Query (batch, heads, length, width), key (batch, heads, width, length) and value; a
        ``permute_dims`` is folded.
    scale : float
        What the scores are multiplied by.
    bias : relax.Expr or None
        What is added to the scaled scores.
    root : relax.Expr
        The last product, or a ``permute_dims`` of it.

    Returns
    -------
    Attention
        Not causal; the key is viewed as (batch, heads, length, width).

    Raises
    ------
    UnsupportedProblemError
        When an operand does not have four dimensions.

    Examples
    --------
    >>> of = lambda *shape: relax.Var("x", relax.TensorType(shape, "float16"))
    >>> operands = of(1, 2, 16, 64), of(1, 2, 64, 16), of(1, 2, 16, 64)
    >>> attention_of_chain(operands, 0.125, None, of(1, 2, 16, 64)).key.shape
    (1, 2, 16, 64)
    """
    query, key, value = (operand_view(operand) for operand in operands)
    if any(len(view.shape) != 4 for view in (query, key, value)):
        raise UnsupportedProblemError("an operand does not have four dimensions")
    shape = None if bias is None else static_shape(bias, "the bias")
    return Attention(
        str(root.ty.dtype),
        query,
        key.permuted((0, 1, 3, 2)),
        value,
        _result(root),
        scale,
        bias=shape,
    )


def _result(root: relax.Expr) -> View:
    """Where a result goes: through the ``permute_dims`` that follows it, where one does."""
    return result_view(root) or View.dense(static_shape(root, "the result"))


def _heads_first(view: View) -> View:
    if len(view.shape) != 4:
        raise UnsupportedProblemError("an operand does not have four dimensions")
    return view.permuted(HEADS_FIRST)
