"""onnxruntime's operators that go on from what earlier calls have left: attention of one new row,
attention without a softmax, and the convolution before it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import relax
from tvm.relax import op

from collage.importers.onnx.operators.microsoft.attention import multi_head
from collage.importers.onnx.operators.node import Node, Refused, const, constant_of, shape_of

_MOST_ROWS = 256
"""More rows of attention without a softmax, one after the other, take too long to search."""


def _one_row(node: Node) -> relax.Expr:
    """Attention of one row, with its cache joined or written into a buffer."""
    if node.has(9) or (node.has(8) and constant_of(node.operand(8)) != 1):
        raise Refused("beams, which share a cache; export the decoder alone")
    if node.integer("output_qk", 0):
        raise Refused("its scores as a result")
    order = [0, 1, 2, 10, 3, 4, 5, 6]
    inputs = [node.inputs[i] if node.has(i) else None for i in order]
    if not (node.integer("past_present_share_buffer", 0) and node.has(5)):
        return multi_head(replace(node, inputs=inputs))
    if node.has(3) or node.has(4):
        raise Refused("a mask beside a buffer that what went before and what comes out share")
    emit, kind = node.emit, node.dtype(0)
    (batch, heads, room, depth), wide = node.shape(5), node.shape(6)[3]
    place = emit(op.reshape(emit(op.astype(node.operand(7), "int64")), [1, 1, 1, 1]))
    rows = const(np.arange(room).reshape(1, 1, room, 1), "int64")
    here = emit(op.equal(rows, place))
    presents = []
    for index, size, first in ((1, depth, heads * depth), (2, wide, 2 * heads * depth)):
        new = node.operand(index)
        if node.has(10):
            part = op.strided_slice(node.operand(10), [0], [first], [first + heads * size])
            new = emit(op.add(new, emit(part)))
        new = emit(op.reshape(new, [batch, heads, 1, size]))
        presents.append(emit(op.where(here, new, node.operand(4 + index))))
    columns = const(np.arange(room).reshape(1, 1, 1, room), "int64")
    seen = emit(op.less_equal(columns, place))
    later = emit(op.where(seen, const(0.0, kind), const(-np.inf, kind)))
    query = node.operand(0)
    if node.has(10):
        own = op.strided_slice(node.operand(10), [0], [0], [heads * depth])
        query = emit(op.add(query, emit(own)))
    # As of an encoder's keys, that are there already.
    result = multi_head(replace(node, inputs=[query, *presents, None, None, later]))
    return result.fields[0] if node.outputs == 1 else relax.Tuple([result.fields[0], *presents])


def _row_by_row(node: Node) -> relax.Expr:
    """Attention without a softmax: a matrix for each head, to which each row adds its own."""
    if node.integer("state_window", 0):
        raise Refused("the states of several rows as a result")
    emit, kind = node.emit, node.dtype(0)
    batch, rows, width = node.shape(0)
    if rows > _MOST_ROWS:
        raise Refused(f"{rows} rows, one after the other; more than {_MOST_ROWS} are not taken")
    heads, few = node.integer("q_num_heads", 0), node.integer("kv_num_heads", 0)
    if heads % few:
        raise Refused(f"{heads} heads of queries for {few}")
    depth, wide = width // heads, node.shape(2)[-1] // few
    rule = node.text("update_rule", "gated_delta")
    scale = node.number("scale", 0.0) or depth**-0.5
    state = (
        emit(op.astype(node.operand(3), "float32"))
        if node.has(3)
        else const(np.zeros((batch, few, depth, wide)), "float32")
    )

    def row(index: int, at: int, count: int, size: int) -> relax.Expr:
        x = emit(op.strided_slice(node.operand(index), [1], [at], [at + 1]))
        return emit(op.astype(emit(op.reshape(x, [batch, count, size])), "float32"))

    results = []
    for at in range(rows):
        key = emit(op.expand_dims(row(1, at, few, depth), -1))
        value = emit(op.expand_dims(row(2, at, few, wide), 2))
        if "gated" in rule:
            size = node.shape(4)[-1] // few
            decay = emit(op.expand_dims(emit(op.exp(row(4, at, few, size))), -1))
            state = emit(op.multiply(state, decay))
        if "delta" in rule:
            known = emit(op.sum(emit(op.multiply(state, key)), 2, keepdims=True))
            counts = node.shape(5)[-1]
            share = emit(op.expand_dims(row(5, at, counts, 1), -1))
            value = emit(op.multiply(emit(op.subtract(value, known)), share))
        state = emit(op.add(state, emit(op.multiply(key, value))))
        asked = emit(op.multiply(row(0, at, heads, depth), const(scale, "float32")))
        asked = emit(op.reshape(asked, [batch, few, heads // few, depth]))
        found = emit(op.matmul(asked, state))
        results.append(emit(op.reshape(found, [batch, 1, heads * wide])))
    result = emit(op.astype(emit(op.concat(results, 1)), kind))
    if node.outputs == 1:
        return result
    return relax.Tuple([result, emit(op.astype(state, node.dtype(3) if node.has(3) else kind))])


def _convolved_from_before(node: Node) -> relax.Expr:
    """A convolution of each channel along rows, which sees what went before and nothing later."""
    odd = ("channels_last", "state_window", "state_update_capacity", "state_length")
    if node.integer("ndim", 1) != 1 or any(node.integer(name, 0) for name in odd):
        raise Refused("a layout other than (batch, channels, rows), or states of several rows")
    emit, kind = node.emit, node.dtype(0)
    batch, channels, _ = node.shape(0)
    apart = node.integer("dilation", 1)
    length = (node.shape(1)[2] - 1) * apart
    before = node.operand(3) if node.has(3) else const(np.zeros((batch, channels, length)), kind)
    whole = emit(op.concat([before, node.operand(0)], 2))
    found = emit(op.nn.conv1d(whole, node.operand(1), groups=channels, dilation=apart))
    if node.has(2):
        found = emit(op.add(found, emit(op.reshape(node.operand(2), [1, channels, 1]))))
    if node.text("activation", "none") in ("silu", "swish"):
        found = emit(op.nn.silu(found))
    if node.outputs == 1:
        return found
    rows = shape_of(whole)[2]
    return relax.Tuple([found, emit(op.strided_slice(whole, [2], [rows - length], [rows]))])


def _without_repetition(node: Node) -> relax.Expr:
    """Scores without those of tokens that would end a row of tokens that was there before."""
    emit, length, (batch, rows) = node.emit, node.integer("ngram_size", 0), node.shape(0)
    tokens, scores = node.operand(0), node.operand(1)
    if length < 1:
        raise Refused(f"rows of {length} tokens")
    if rows < length:
        return scores
    count = rows - length + 1
    repeated = const(np.ones((batch, count), bool), "bool")
    for step in range(length - 1):
        before = emit(op.strided_slice(tokens, [1], [step], [step + count]))
        last = emit(op.strided_slice(tokens, [1], [count + step], [count + step + 1]))
        repeated = emit(op.logical_and(repeated, emit(op.equal(before, last))))
    behind = emit(op.strided_slice(tokens, [1], [length - 1], [rows]))
    # A token that is not one of them is none of the vocabulary.
    ends = emit(op.where(repeated, behind, const(-1, node.dtype(0))))
    words = const(np.arange(node.shape(1)[1]).reshape(1, -1, 1), node.dtype(0))
    hits = emit(op.equal(words, emit(op.expand_dims(ends, 1))))
    banned = emit(op.max(emit(op.astype(hits, "int32")), [2]))
    gone = emit(op.greater(banned, const(0, "int32")))
    return emit(op.where(gone, const(-np.inf, node.dtype(1)), scores))


MICROSOFT = {
    "CausalConvWithState": _convolved_from_before,
    "DecoderMaskedMultiHeadAttention": _one_row,
    "LinearAttention": _row_by_row,
    "NGramRepeatBlock": _without_repetition,
}
