"""Graphs that are one region each: residual sums, joins, splits, views, several outputs."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.onednn.cases import lrn, shuffle


def conv(
    emit: Emit,
    x: relax.Expr,
    out: int,
    into: int,
    *,
    size: int = 3,
    bias: bool = True,
    **attrs: int,
) -> relax.Expr:
    """A convolution that keeps the picture's size, with a bias."""
    groups = attrs.get("groups", 1)
    weights = constant(out, into // groups, size, size, scale=(into // groups * size**2) ** -0.5)
    y = emit(op.nn.conv2d(x, weights, padding=size // 2, **attrs))
    return emit(op.add(y, constant(1, out, 1, 1))) if bias else y


def residual(emit: Emit, x: relax.Expr) -> relax.Expr:
    """The sum can be done in place on the pooled input, whose last use it is."""
    y = emit(op.nn.max_pool2d(x, (3, 3), (1, 1), (1, 1)))
    z = emit(op.nn.relu(conv(emit, y, 16, 16)))
    return emit(op.nn.relu(emit(op.add(y, conv(emit, z, 16, 16)))))


def residual_used_later(emit: Emit, x: relax.Expr) -> relax.Expr:
    """The sum must not overwrite a value that is read once more."""
    y = emit(op.nn.relu(conv(emit, x, 16, 16)))
    z = emit(op.add(conv(emit, conv(emit, y, 16, 16), 16, 16), y))
    return emit(op.concat([z, y], axis=1))


def residual_twice(emit: Emit, x: relax.Expr) -> relax.Expr:
    """The same value is added twice after one convolution."""
    y = emit(op.nn.relu(conv(emit, x, 16, 16)))
    z = emit(op.add(conv(emit, y, 16, 16), y))
    return emit(op.add(z, y))


def sum_of_sums(emit: Emit, x: relax.Expr) -> relax.Expr:
    """One operand of the last sum is computed after the other, into which the sum was fused."""
    y = emit(op.nn.max_pool2d(x, (3, 3), (1, 1), (1, 1)))
    doubled = emit(op.add(y, y))
    gated = emit(op.multiply(y, emit(op.mean(y, [2, 3], keepdims=True))))
    return emit(op.add(gated, doubled))


def own_input(emit: Emit, x: relax.Expr) -> relax.Expr:
    """A convolution to which its own input is added."""
    y = emit(op.nn.relu(x))
    return emit(op.add(conv(emit, y, 16, 16), y))


def two_convs(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Either convolution may take the addition."""
    return emit(op.add(conv(emit, x, 8, 16), conv(emit, x, 8, 16, size=1)))


def inverted(emit: Emit, x: relax.Expr) -> relax.Expr:
    """MobileNet's block: the first operand of the addition has other users."""
    y = conv(emit, x, 24, 16, size=1)
    z = emit(op.clip(conv(emit, y, 96, 24, size=1), 0, 6))
    z = emit(op.clip(conv(emit, z, 96, 96, groups=96), 0, 6))
    z = emit(op.add(y, conv(emit, z, 24, 96, size=1)))
    return conv(emit, z, 40, 24, size=1)


def dense_block(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Every concatenation begins with the one before."""
    whole = conv(emit, x, 32, 16)
    for layer in range(3):
        channels = 32 + 16 * layer
        y = emit(op.add(emit(op.multiply(whole, constant(1, channels, 1, 1))),
                        constant(1, channels, 1, 1)))  # fmt: skip
        y = conv(emit, emit(op.nn.relu(y)), 16, channels)
        whole = emit(op.concat([whole, y], axis=1))
    return whole


def odd_channels(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Blocked layouts pad 5 and 7 channels; the result's 35 lie elsewhere."""
    parts = [conv(emit, x, c, 16) for c in (5, 7, 16)]
    y = emit(op.concat([*parts, parts[1]], axis=1))
    return conv(emit, emit(op.sigmoid(y)), 9, 35, size=1)


def odd_last(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Only the last part is padded."""
    return conv(emit, emit(op.concat([conv(emit, x, 32, 16), conv(emit, x, 5, 16)], axis=1)), 8, 37)


def in_two_concats(emit: Emit, x: relax.Expr) -> relax.Expr:
    """A value that is a part of two concatenations can live in one of them only."""
    a, b, c = (conv(emit, x, 16, 16) for _ in range(3))
    first, second = emit(op.concat([a, b], axis=1)), emit(op.concat([b, c], axis=1))
    return emit(op.add(emit(op.nn.relu(first)), second))


def pad_and_pools(emit: Emit, x: relax.Expr) -> relax.Expr:
    y = emit(op.nn.pad(x, (0, 0, 0, 0, 1, 2, 0, 1)))
    y = emit(op.nn.conv2d(y, constant(12, 16, 3, 3, scale=0.1), strides=2))
    y = emit(op.nn.avg_pool2d(y, (3, 3), (2, 2), (1, 1), count_include_pad=True))
    y = emit(op.nn.max_pool2d(y, (2, 2), (1, 1), ceil_mode=True))
    return emit(op.reshape(emit(op.mean(y, [2, 3], keepdims=True)), (2, 12)))


def dilated_grouped(emit: Emit, x: relax.Expr) -> relax.Expr:
    y = emit(op.nn.conv2d(x, constant(20, 4, 3, 3, scale=0.2), padding=(2, 1, 0, 3),
                          dilation=(2, 1), strides=(1, 2), groups=4))  # fmt: skip
    return emit(op.nn.leakyrelu(y, 0.2))


def resized(emit: Emit, x: relax.Expr) -> relax.Expr:
    """As a feature pyramid: both ways to enlarge, between convolutions."""
    y = conv(emit, x, 16, 16)
    y = emit(op.image.resize2d(y, (2 * X[2], 3 * X[3]), method="nearest_neighbor",
             coordinate_transformation_mode="asymmetric", rounding_method="floor"))  # fmt: skip
    y = emit(op.nn.relu(conv(emit, y, 12, 16)))
    return conv(emit, emit(op.image.resize2d(y, (17, 41))), 8, 12, size=1)


def squeeze_excite(emit: Emit, x: relax.Expr) -> relax.Expr:
    """The gate is broadcast over the picture."""
    y = emit(op.nn.silu(conv(emit, x, 24, 16)))
    gate = emit(op.mean(y, [2, 3], keepdims=True))
    gate = emit(op.nn.relu(conv(emit, gate, 6, 24, size=1)))
    gate = emit(op.sigmoid(conv(emit, gate, 24, 6, size=1)))
    return conv(emit, emit(op.multiply(gate, y)), 16, 24, size=1)


def split_and_join(emit: Emit, x: relax.Expr) -> relax.Expr:
    y = conv(emit, x, 48, 16)
    parts = emit(op.split(y, [16, 21], axis=1))
    a, b, c = (emit(relax.TupleGetItem(parts, i)) for i in range(3))
    return emit(op.concat([conv(emit, c, 16, 27), emit(op.tanh(a)), b], axis=1))


def attention(emit: Emit, x: relax.Expr, mask: relax.Expr) -> relax.Expr:
    """Multi-head self-attention of 2 sequences of 7 tokens with 3 heads of 8, and its residual."""

    def dense(value: relax.Expr) -> relax.Expr:
        y = emit(op.matmul(value, constant(24, 24, scale=0.2)))
        return emit(op.add(y, constant(24)))

    def heads(value: relax.Expr, axes: list[int]) -> relax.Expr:
        return emit(op.permute_dims(emit(op.reshape(value, (2, 7, 3, 8))), axes))

    query, value = heads(dense(x), [0, 2, 1, 3]), heads(dense(x), [0, 2, 1, 3])
    key = heads(dense(x), [0, 2, 3, 1])
    scores = emit(op.divide(emit(op.matmul(query, key)), relax.const(np.float32(8**0.5))))
    weights = emit(op.nn.softmax(emit(op.add(scores, mask)), axis=-1))
    context = emit(op.permute_dims(emit(op.matmul(weights, value)), [0, 2, 1, 3]))
    y = emit(op.add(dense(emit(op.reshape(context, (2, 7, 24)))), x))
    y = emit(op.nn.layer_norm(y, constant(24), constant(24), axes=[-1]))
    return emit(op.nn.gelu(dense(y)))


def row_bias(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Values added per row cannot go into a product's kernel."""
    y = emit(op.matmul(x, constant(8, 12)))
    return emit(op.nn.relu(emit(op.add(y, constant(5, 1)))))


def returned_twice(emit: Emit, x: relax.Expr) -> relax.Expr:
    y = conv(emit, x, 16, 16)
    return relax.Tuple([y, y])


def views_returned(emit: Emit, x: relax.Expr) -> relax.Expr:
    y = emit(op.nn.relu(conv(emit, x, 16, 16)))
    flat = emit(op.reshape(y, (2, 16 * 72)))
    return relax.Tuple([emit(op.permute_dims(y, [0, 2, 3, 1])), flat, y, emit(op.exp(flat))])


def used_after_return(emit: Emit, x: relax.Expr) -> relax.Expr:
    """A returned value is read on, and would be overwritten by a sum in place."""
    y = emit(op.reshape(x, (2, 144, 8)))
    y = emit(op.matmul(y, constant(8, 8, scale=0.3)))
    z = emit(op.add(emit(op.matmul(emit(op.tanh(y)), constant(8, 8))), y))
    return relax.Tuple([y, z])


def straight_through(emit: Emit, x: relax.Expr) -> relax.Expr:
    """A view of the input is returned."""
    y = emit(op.reshape(x, (2, 16, 72)))
    return relax.Tuple([y, emit(op.nn.relu(y))])


def normalized(*shape: int, axes: list[int]) -> tvm.IRModule:
    """A layer norm over the last axes of tensors of more axes, or fewer, than oneDNN's."""
    width = [shape[axis] for axis in axes]
    return graph(
        [shape],
        lambda emit, x: emit(op.nn.layer_norm(x, constant(*width), constant(*width), axes=axes)),
    )


X = (2, 16, 9, 8)


ONE = (1, 16, 9, 8)


GRAPHS = {
    "residual": graph([X], residual),
    "residual_used_later": graph([ONE], residual_used_later),
    "residual_twice": graph([X], residual_twice),
    "sum_of_sums": graph([X], sum_of_sums),
    "own_input": graph([ONE], own_input),
    "two_convs": graph([X], two_convs),
    "inverted": graph([ONE], inverted),
    "dense_block": graph([ONE], dense_block),
    "dense_block_batch": graph([X], dense_block),
    "odd_channels": graph([ONE], odd_channels),
    "odd_channels_batch": graph([X], odd_channels),
    "odd_last": graph([ONE], odd_last),
    "in_two_concats": graph([ONE], in_two_concats),
    "pad_and_pools": graph([X], pad_and_pools),
    "dilated_grouped": graph([X], dilated_grouped),
    "resized": graph([X], resized),
    "squeeze_excite": graph([ONE], squeeze_excite),
    "squeeze_excite_batch": graph([X], squeeze_excite),
    "split_and_join": graph([ONE], split_and_join),
    "split_and_join_batch": graph([X], split_and_join),
    "lrn_size_3": graph([X], lambda emit, x: emit(lrn(emit, conv(emit, x, 16, 16), X, 3))),
    "shuffled": graph([X], lambda emit, x: conv(emit, emit(shuffle(emit, x, X, 4)), 8, 16)),
    "attention": graph([(2, 7, 24), (2, 1, 1, 7)], attention),
    "row_bias": graph([(3, 5, 8)], row_bias),
    "returned_twice": graph([ONE], returned_twice),
    "views_returned": graph([X], views_returned),
    "used_after_return": graph([X], used_after_return),
    "straight_through": graph([X], straight_through),
    "normalized_whole": normalized(3, 40, axes=[0, 1]),
    "normalized_vector": normalized(40, axes=[0]),
    "normalized_of_six_axes": normalized(2, 1, 3, 2, 2, 40, axes=[5]),
}
