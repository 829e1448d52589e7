"""Attention from its heads on: what hides columns from rows, and the shares that are left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax
from tvm.relax import op

from collage.importers.onnx.operators.node import Node, Refused, const, dtype_of, shape_of


@dataclass(frozen=True)
class Scoring:
    """How scores become shares.

    Attributes
    ----------
    scale : float
        Of the products; 0 for one over the root of the depth.
    bias : relax.Expr or None
        Added to the scores, of four axes.
    causal : bool
        Whether rows see no later columns; the last row sees the last column.
    cap : float
        Scores are squeezed between its negative and it by a tanh; 0 for as they are.
    sink : relax.Expr or None
        A score of each head that takes a share of its own and gives nothing, (1, heads, 1, 1).
    """

    scale: float = 0.0
    bias: relax.Expr | None = None
    causal: bool = False
    cap: float = 0.0
    sink: relax.Expr | None = None


def attend(
    node: Node, query: relax.Expr, key: relax.Expr, value: relax.Expr, scoring: Scoring
) -> relax.Expr:
    """Attention over (batch, sequence, heads, depth), the heads of a row joined again.

    Parameters
    ----------
    node : Node
        Where to write.
    query, key, value : relax.Expr
        With the same number of heads.
    scoring : Scoring
        How scores become shares.

    Returns
    -------
    relax.Expr
        Of (batch, sequence, heads times depth).
    """
    batch, rows = shape_of(query)[:2]
    scale = scoring.scale or 1 / math.sqrt(shape_of(query)[-1])
    if scoring.cap or scoring.sink is not None:
        result = _in_parts(node, query, key, value, scoring, scale)
    else:
        causal = "BottomRight" if scoring.causal else None
        result = node.emit(op.nn.attention(query, key, value, scoring.bias, scale, causal))
    return node.emit(op.reshape(result, [batch, rows, math.prod(shape_of(result)[2:])]))


def _in_parts(
    node: Node,
    query: relax.Expr,
    key: relax.Expr,
    value: relax.Expr,
    scoring: Scoring,
    scale: float,
) -> relax.Expr:
    emit, kind = node.emit, dtype_of(query)
    q, v = (emit(op.permute_dims(x, [0, 2, 1, 3])) for x in (query, value))
    k = emit(op.permute_dims(key, [0, 2, 3, 1]))
    scores = emit(op.multiply(emit(op.matmul(q, k)), const(scale, kind)))
    if scoring.cap:
        squeezed = emit(op.tanh(emit(op.multiply(scores, const(1 / scoring.cap, kind)))))
        scores = emit(op.multiply(squeezed, const(scoring.cap, kind)))
    batch, heads, rows, columns = shape_of(scores)
    if scoring.causal:
        later = np.triu(np.full((rows, columns), -np.inf), 1 + columns - rows)
        scores = emit(op.add(scores, const(later, kind)))
    if scoring.bias is not None:
        scores = emit(op.add(scores, scoring.bias))
    if scoring.sink is not None:
        sink = emit(op.broadcast_to(scoring.sink, [batch, heads, rows, 1]))
        scores = emit(op.concat([scores, sink], -1))
    shares = emit(op.nn.softmax(scores, -1))
    if scoring.sink is not None:
        shares = emit(op.strided_slice(shares, [3], [0], [columns]))
    return emit(op.permute_dims(emit(op.matmul(shares, v)), [0, 2, 1, 3]))


def padding(
    node: Node, index: int, extents: Sequence[int], hidden: float, kind: str
) -> relax.Expr | None:
    """What is added to scores by a mask of what pads sequences; None where it masks nothing.

    Parameters
    ----------
    node : Node
        Where to write.
    index : int
        Of the mask among its inputs: of each column whether it is seen, alike for all rows or not,
        or of each sequence where it ends, and behind all ends where each begins.
    extents : sequence of int
        Sequences, rows and columns.
    hidden : float
        What is added where a column is not seen.
    kind : str
        The scores' element type.

    Returns
    -------
    relax.Expr or None
        Of four axes, to be broadcast to (batch, heads, rows, columns).

    Raises
    ------
    Refused
        For masks of another shape.
    """
    if not node.has(index):
        return None
    batch, rows, columns = extents
    shape, mask, emit = node.shape(index), node.operand(index), node.emit
    if shape in ([batch, columns], [1, columns]):
        seen = emit(op.greater(mask, const(0, dtype_of(mask))))
        seen = emit(op.reshape(seen, [shape[0], 1, 1, columns]))
    elif shape == [batch, rows, columns]:
        seen = emit(op.greater(mask, const(0, dtype_of(mask))))
        seen = emit(op.reshape(seen, [batch, 1, rows, columns]))
    elif shape in ([batch, 1], [1, 1]):
        return None
    elif shape in ([batch], [2 * batch]):
        places = const(np.arange(columns).reshape(1, 1, 1, columns), dtype_of(mask))
        ends = emit(op.strided_slice(mask, [0], [0], [batch]))
        seen = emit(op.less(places, emit(op.reshape(ends, [batch, 1, 1, 1]))))
        if shape == [2 * batch]:
            begins = emit(op.strided_slice(mask, [0], [batch], [2 * batch]))
            begun = emit(op.greater_equal(places, emit(op.reshape(begins, [batch, 1, 1, 1]))))
            seen = emit(op.logical_and(seen, begun))
    else:
        raise Refused(f"a mask of shape {tuple(shape)} for {columns} columns")
    return emit(op.where(seen, const(0.0, kind), const(hidden, kind)))


def added(node: Node, *terms: relax.Expr | None) -> relax.Expr | None:
    """The sum of those terms that there are.

    Parameters
    ----------
    node : Node
        Where to write.
    *terms : relax.Expr or None
        That are broadcast to each other.

    Returns
    -------
    relax.Expr or None
        None where there are none.
    """
    total = None
    for term in terms:
        if term is not None:
            total = term if total is None else node.emit(op.add(total, term))
    return total


def in_heads(node: Node, x: relax.Expr, heads: int) -> relax.Expr:
    """Rows cut into heads: (batch, sequence, heads, depth).

    Parameters
    ----------
    node : Node
        Where to write.
    x : relax.Expr
        Of (batch, sequence, heads times depth).
    heads : int
        How many.

    Returns
    -------
    relax.Expr
        Of four axes.

    Raises
    ------
    Refused
        Where they do not divide a row.
    """
    batch, rows, width = shape_of(x)
    if heads < 1 or width % heads:
        raise Refused(f"{heads} heads of rows of {width}")
    return node.emit(op.reshape(x, [batch, rows, heads, width // heads]))


def swapped(node: Node, x: relax.Expr) -> relax.Expr:
    """Heads before rows, or rows before heads again.

    Parameters
    ----------
    node : Node
        Where to write.
    x : relax.Expr
        Of four axes.

    Returns
    -------
    relax.Expr
        With its second and third axis changed over.
    """
    return node.emit(op.permute_dims(x, [0, 2, 1, 3]))


def columns_of(node: Node, x: relax.Expr, begin: int, end: int) -> relax.Expr:
    """A part of a tensor along its last axis.

    Parameters
    ----------
    node : Node
        Where to write.
    x : relax.Expr
        Of any rank but 0.
    begin, end : int
        From where to below where.

    Returns
    -------
    relax.Expr
        With ``end - begin`` elements on that axis.
    """
    return node.emit(op.strided_slice(x, [len(shape_of(x)) - 1], [begin], [end]))
