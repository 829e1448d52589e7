"""onnxruntime's attention operators, as its optimizer and builders of models write them.

Each is its projections, cut into heads, and what
:mod:`~collage.importers.onnx.operators.microsoft.scores` makes of them.
"""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op

from collage.importers.onnx.operators.microsoft.rotary import rotary_embedding
from collage.importers.onnx.operators.microsoft.scores import (
    Scoring,
    added,
    attend,
    columns_of,
    in_heads,
    padding,
    swapped,
)
from collage.importers.onnx.operators.node import Node, Refused, const, dtype_of, shape_of

_HIDDEN = -10000.0
"""What onnxruntime adds to the scores of what a mask hides, unless an attribute says otherwise."""


def _attention(node: Node) -> relax.Expr:
    """All three projections are one product."""
    if node.has(6):
        raise Refused("a buffer that what went before and what comes out share")
    x = node.emit(op.matmul(node.operand(0), node.operand(1)))
    return attention_of(node, _biased(node, x, 2), mask=3, past=4, bias=5)


def attention_of(node: Node, x: relax.Expr, mask: int, past: int, bias: int | None) -> relax.Expr:
    """Attention of rows to each other.

    Parameters
    ----------
    node : Node
        With the attributes of ``com.microsoft.Attention``.
    x : relax.Expr
        Queries, keys and values of a row, joined.
    mask, past, bias : int
        Of these inputs, if they are given.

    Returns
    -------
    relax.Expr
        Of (batch, rows, width); where the node has two results, a tuple of that and the joined keys
        and values.

    Raises
    ------
    Refused
        For masks of other shapes, and what is known on GPUs alone.
    """
    if node.integer("past_present_share_buffer", 0):
        raise Refused("a buffer that what went before and what comes out share")
    if node.integer("do_rotary", 0):
        raise Refused("rotary positions inside of the attention")
    widths = node.integers("qkv_hidden_sizes", [shape_of(x)[-1] // 3] * 3)
    first, second, third = (sum(widths[:i]) for i in (1, 2, 3))
    heads = node.integer("num_heads", 0)
    query, key, value = (
        in_heads(node, columns_of(node, x, begin, end), heads)
        for begin, end in ((0, first), (first, second), (second, third))
    )
    kept = []
    if node.has(past):
        before = node.operand(past)
        shape = shape_of(before)[1:]
        for index, new in ((0, key), (1, value)):
            old = node.emit(op.strided_slice(before, [0], [index], [index + 1]))
            kept.append(_behind(node, node.emit(op.reshape(old, shape)), new))
        key, value = (swapped(node, whole) for whole in kept)
    extents = [*shape_of(query)[:2], shape_of(key)[1]]
    scoring = Scoring(
        node.number("scale", 0.0),
        added(
            node,
            node.operand(bias) if bias is not None and node.has(bias) else None,
            padding(node, mask, extents, _filter(node), dtype_of(x)),
        ),
        bool(node.integer("unidirectional", 0)),
    )
    result = attend(node, query, key, value, scoring)
    if node.outputs == 1:
        return result
    kept = kept or [swapped(node, whole) for whole in (key, value)]
    present = node.emit(op.stack(kept, 0))
    return relax.Tuple([result, present])


def _biased(node: Node, x: relax.Expr, index: int) -> relax.Expr:
    return node.emit(op.add(x, node.operand(index))) if node.has(index) else x


def _filter(node: Node) -> float:
    return node.number("mask_filter_value", _HIDDEN)


def _behind(node: Node, old: relax.Expr, new: relax.Expr) -> relax.Expr:
    """Rows of (batch, heads, rows, depth), then those of (batch, rows, heads, depth)."""
    return node.emit(op.concat([old, swapped(node, new)], 2))


def multi_head(node: Node) -> relax.Expr:
    """Queries, keys and values are projected before; keys may be whole heads of an encoder.

    Raises
    ------
    Refused
        For buffers that are shared, scores as a result, and what is joined in one tensor.
    """
    if node.has(8) or node.has(9):
        raise Refused("a buffer that what went before and what comes out share")
    if node.outputs > 3:
        raise Refused("its scores as a result")
    if not (node.has(1) and node.has(2)) or len(node.shape(0)) != 3:
        raise Refused("queries, keys and values in one tensor")
    heads = node.integer("num_heads", 0)
    of_encoder = len(node.shape(1)) == 4
    width, depth = node.shape(0)[-1], node.shape(2)[-1]
    query = in_heads(node, _projected(node, 0, 0, width), heads)
    if of_encoder:
        key, value = (swapped(node, node.operand(index)) for index in (1, 2))
    else:
        key = in_heads(node, _projected(node, 1, width, 2 * width), heads)
        value = in_heads(node, _projected(node, 2, 2 * width, 2 * width + depth), heads)
    present = [swapped(node, x) for x in (key, value)]
    if node.has(6) and not of_encoder:
        present = [_behind(node, node.operand(i), x) for i, x in ((6, key), (7, value))]
        key, value = (swapped(node, whole) for whole in present)
    extents = [*shape_of(query)[:2], shape_of(key)[1]]
    bias = node.operand(5) if node.has(5) else None
    mask = padding(node, 4, extents, _filter(node), dtype_of(query))
    scoring = Scoring(
        node.number("scale", 0.0),
        added(node, bias, mask),
        bool(node.integer("unidirectional", 0)),
    )
    result = attend(node, query, key, value, scoring)
    return result if node.outputs == 1 else relax.Tuple([result, *present])


def _projected(node: Node, index: int, begin: int, end: int) -> relax.Expr:
    """One of query, key and value, with its part of the bias of all three."""
    x = node.operand(index)
    if not node.has(3):
        return x
    return node.emit(op.add(x, columns_of(node, node.operand(3), begin, end)))


_UNKNOWN = {
    12: "a cache in steps of a scale",
    14: "norms inside of the attention",
    16: "chunks of different lengths",
}
"""By input, what grouped attention may be given that is not computed here."""


def _grouped(node: Node) -> relax.Expr:
    """Several heads of queries to each of keys and values, behind those of earlier steps."""
    for index, what in _UNKNOWN.items():
        if node.has(index):
            raise Refused(what)
    if node.outputs > 3:
        raise Refused("its scores as a result")
    heads, few = node.integer("num_heads", 0), node.integer("kv_num_heads", 0)
    query, key, value = _three(node, heads, few)
    batch, rows = shape_of(query)[:2]
    total = int(node.fixed(6, "total length").reshape(()))
    begins = _begins(node, batch, rows, total)
    if node.integer("do_rotary", 0):
        given = node.operand(9) if node.has(9) else None
        places = _counted_from(node, begins, rows) if given is None else given
        mixed = bool(node.integer("rotary_interleaved", 0))
        query, key = (
            rotary_embedding(node, x, places, node.operand(7), node.operand(8), mixed)
            for x in (query, key)
        )
    if rows != total and not node.has(3):
        raise Refused(f"{rows} rows of {total}, without those before them")
    keys = [_cached(node, i, x, begins, total) for i, x in ((3, key), (4, value))]
    columns = rows if rows == total else shape_of(keys[0])[1]
    key, value = (node.emit(op.strided_slice(x, [1], [0], [columns])) for x in keys)
    sink = None
    if node.has(11) or node.integer("smooth_softmax", 0) == 1:
        values = node.operand(11) if node.has(11) else const(np.zeros(heads), dtype_of(query))
        sink = node.emit(op.reshape(values, [1, heads, 1, 1]))
    bias = node.operand(10) if node.has(10) else None
    scoring = Scoring(
        node.number("scale", 0.0),
        added(node, bias, _later(node, begins, rows, columns, dtype_of(query))),
        cap=node.number("softcap", 0.0),
        sink=sink,
    )
    key, value = (node.emit(op.repeat(x, heads // few, 2)) for x in (key, value))
    result = attend(node, query, key, value, scoring)
    if node.outputs == 1:
        return result
    return relax.Tuple([result, *(swapped(node, x) for x in keys)])


def _three(node: Node, heads: int, few: int) -> list[relax.Expr]:
    """Queries, keys and values in heads; they may be joined in one tensor."""
    if few < 1 or heads % few:
        raise Refused(f"{heads} heads for {few}")
    if node.has(1):
        return [in_heads(node, node.operand(i), n) for i, n in enumerate((heads, few, few))]
    x = node.operand(0)
    depth = shape_of(x)[-1] // (heads + 2 * few)
    ends = [n * depth for n in (0, heads, heads + few, heads + 2 * few)]
    counts = (heads, few, few)
    return [
        in_heads(node, columns_of(node, x, ends[i], ends[i + 1]), n) for i, n in enumerate(counts)
    ]


def _begins(node: Node, batch: int, rows: int, total: int) -> relax.Expr:
    """How many columns went before the first row of each sequence: (batch, 1), int32."""
    if rows == total or batch == 1:
        return const(np.full((batch, 1), total - rows), "int32")
    lengths = node.emit(op.reshape(node.operand(5), [batch, 1]))
    return node.emit(op.subtract(lengths, const(rows - 1, "int32")))


def _counted_from(node: Node, begins: relax.Expr, rows: int) -> relax.Expr:
    """The place of each row in its sequence."""
    return node.emit(op.add(begins, const(np.arange(rows)[None], "int32")))


def _cached(node: Node, index: int, new: relax.Expr, begins: relax.Expr, total: int) -> relax.Expr:
    """What comes out as the cache: earlier rows, the new ones, and what room there is behind."""
    if not node.has(index):
        return new
    old = swapped(node, node.operand(index))
    batch, room, heads, depth = shape_of(old)
    rows = shape_of(new)[1]
    if rows == total:
        if room <= rows:
            return new
        return node.emit(op.concat([new, node.emit(op.strided_slice(old, [1], [rows], [room]))], 1))
    both = node.emit(op.concat([old, new], 1))
    if batch == 1 and room == total - rows:
        return both
    columns = max(room, total)
    places = const(np.arange(columns)[None], "int32")
    fresh = node.emit(op.add(node.emit(op.subtract(places, begins)), const(room, "int32")))
    behind = node.emit(op.greater_equal(places, begins))
    fresh = node.emit(op.minimum(fresh, const(room + rows - 1, "int32")))
    kept = node.emit(op.minimum(places, const(room - 1, "int32")))
    chosen = node.emit(op.where(behind, fresh, kept))
    first = const(np.arange(batch)[:, None] * (room + rows), "int32")
    flat = node.emit(op.reshape(both, [batch * (room + rows), heads * depth]))
    wanted = node.emit(op.reshape(node.emit(op.add(chosen, first)), [batch * columns]))
    taken = node.emit(op.take(flat, wanted, 0))
    return node.emit(op.reshape(taken, [batch, columns, heads, depth]))


def _later(node: Node, begins: relax.Expr, rows: int, columns: int, kind: str) -> relax.Expr | None:
    """What hides later columns from a row, and those too far before it."""
    window = node.integer("local_window_size", -1)
    at = node.emit(op.reshape(_counted_from(node, begins, rows), [-1, 1, rows, 1]))
    places = const(np.arange(columns).reshape(1, 1, 1, columns), "int32")
    seen = node.emit(op.less_equal(places, at))
    if window > 0:
        near = node.emit(op.greater(places, node.emit(op.subtract(at, const(window, "int32")))))
        seen = node.emit(op.logical_and(seen, near))
    return node.emit(op.where(seen, const(0.0, kind), const(-np.inf, kind)))


MICROSOFT = {
    "Attention": _attention,
    "GroupQueryAttention": _grouped,
    "MultiHeadAttention": multi_head,
}
