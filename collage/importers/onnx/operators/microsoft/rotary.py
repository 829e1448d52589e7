"""Positions as rotations of pairs of numbers."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op

from collage.importers.onnx.operators.microsoft.scores import columns_of, swapped
from collage.importers.onnx.operators.node import Node, Refused, const, shape_of


def rotary_embedding(
    node: Node,
    x: relax.Expr,
    places: relax.Expr,
    cosines: relax.Expr,
    sines: relax.Expr,
    interleaved: bool,
) -> relax.Expr:
    """Heads with their first numbers rotated in pairs; what the tables do not reach stays.

    Parameters
    ----------
    node : Node
        Where to write.
    x : relax.Expr
        Of (batch, sequence, heads, depth).
    places : relax.Expr
        Of (batch, sequence), or (1, sequence) for all alike.
    cosines, sines : relax.Expr
        Tables by place, of half the numbers that are rotated.
    interleaved : bool
        Whether pairs are neighbours, or numbers half apart.

    Returns
    -------
    relax.Expr
        Of the shape of ``x``.
    """
    emit = node.emit
    lead, rows = shape_of(places)
    half = shape_of(cosines)[-1]
    flat = emit(op.reshape(places, [lead * rows]))
    cosine, sine = (
        emit(op.reshape(emit(op.take(table, flat, 0)), [lead, rows, 1, half]))
        for table in (cosines, sines)
    )
    return _rotated(node, x, cosine, sine, interleaved)


def _rotated(
    node: Node, x: relax.Expr, cosine: relax.Expr, sine: relax.Expr, interleaved: bool
) -> relax.Expr:
    emit, (batch, rows, heads, depth), half = node.emit, shape_of(x), shape_of(cosine)[-1]
    turned = columns_of(node, x, 0, 2 * half) if 2 * half < depth else x
    if interleaved:
        pairs = emit(op.reshape(turned, [batch, rows, heads, half, 2]))
        first, second = (
            emit(op.reshape(columns_of(node, pairs, i, i + 1), [batch, rows, heads, half]))
            for i in (0, 1)
        )
    else:
        first, second = (columns_of(node, turned, i * half, (i + 1) * half) for i in (0, 1))
    left = emit(op.subtract(emit(op.multiply(first, cosine)), emit(op.multiply(second, sine))))
    right = emit(op.add(emit(op.multiply(second, cosine)), emit(op.multiply(first, sine))))
    if interleaved:
        whole = emit(op.reshape(emit(op.stack([left, right], -1)), [batch, rows, heads, 2 * half]))
    else:
        whole = emit(op.concat([left, right], -1))
    if 2 * half == depth:
        return whole
    return emit(op.concat([whole, columns_of(node, x, 2 * half, depth)], -1))


def _embedding(node: Node) -> relax.Expr:
    heads = _heads(node)
    places, rows = node.operand(1), shape_of(heads)[1]
    if len(node.shape(1)) == 1:
        counted = const(np.arange(rows)[None], node.dtype(1))
        places = node.emit(op.add(node.emit(op.reshape(places, [1, 1])), counted))
    mixed = bool(node.integer("interleaved", 0))
    found = rotary_embedding(node, heads, places, node.operand(2), node.operand(3), mixed)
    return _as_given(node, found)


def _heads(node: Node) -> relax.Expr:
    """The first input as (batch, sequence, heads, depth)."""
    if node.integer("is_packed_batching", 0):
        raise Refused("sequences of different lengths in one")
    x, shape, half = node.operand(0), node.shape(0), node.shape(2)[-1]
    if len(shape) == 4:
        return swapped(node, x)
    rotated = node.integer("rotary_embedding_dim", 0)
    depth = shape[-1] // node.integer("num_heads", 0) if rotated else 2 * half
    return node.emit(op.reshape(x, [*shape[:2], shape[-1] // depth, depth]))


def _as_given(node: Node, found: relax.Expr) -> relax.Expr:
    shape = node.shape(0)
    return swapped(node, found) if len(shape) == 4 else node.emit(op.reshape(found, shape))


def _of_three(node: Node) -> relax.Expr:
    """Places in time, height and width, each of which turns some of the pairs."""
    emit, sections, half = node.emit, node.integers("mrope_section", ()), node.shape(2)[-1]
    if len(sections) != 3 or sum(sections) != half:
        raise Refused(f"sections {sections} of {half} pairs")
    if node.integer("mrope_layout", 0):
        whose = np.zeros(half, "int64")
        for which in (1, 2):
            whose[which : 3 * sections[which] : 3] = which
    else:
        whose = np.repeat(np.arange(3), sections)
    heads = _heads(node)
    batch, rows = shape_of(heads)[:2]
    flat = emit(op.reshape(node.operand(1), [3 * batch * rows]))

    def looked_up(table: relax.Expr) -> relax.Expr:
        found = emit(op.reshape(emit(op.take(table, flat, 0)), [3, batch, rows, 1, half]))
        time, *others = (
            emit(op.squeeze(emit(op.strided_slice(found, [0], [i], [i + 1])), [0]))
            for i in range(3)
        )
        for which, other in enumerate(others, 1):
            time = emit(op.where(const(whose == which, "bool"), other, time))
        return time

    cosine, sine = looked_up(node.operand(2)), looked_up(node.operand(3))
    found = _rotated(node, heads, cosine, sine, bool(node.integer("interleaved", 0)))
    return _as_given(node, found)


MICROSOFT = {"MRotaryEmbedding": _of_three, "RotaryEmbedding": _embedding}
