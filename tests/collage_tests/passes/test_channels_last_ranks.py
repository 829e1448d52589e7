"""Channels last in one to three dimensions, with no more permutations than needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax

from tests.collage_tests.passes.networks import (
    Emit,
    build,
    check,
    conv,
    operators,
    weights,
)

op = relax.op


def convolved(emit: Emit, x: relax.Expr, width: int, depth: int, kernel: int = 3, **a: Any) -> Any:
    """A convolution of any rank that keeps the extents, with a bias."""
    rank = len(x.ty.shape) - 2
    # Values stay near one, so that a gate's rounding does not grow with them.
    w = weights(width, depth, *[kernel] * rank, seed=width, scale=(depth * kernel**rank) ** -0.5)
    y = emit(getattr(op.nn, f"conv{rank}d")(x, w, padding=[kernel // 2] * 2 * rank, **a))
    return emit(op.add(y, weights(1, width, *[1] * rank, seed=depth)))


def doubled(emit: Emit, x: relax.Expr, width: int, depth: int) -> Any:
    """A transposed convolution that doubles the extents."""
    rank = len(x.ty.shape) - 2
    w = weights(depth, width, *[4] * rank, seed=width, scale=(depth * 2**rank) ** -0.5)
    make = getattr(op.nn, f"conv{rank}d_transpose")
    return emit(make(x, w, strides=[2] * rank, padding=[1] * 2 * rank))


SPACES = [(12,), (6, 8), (4, 6, 5)]


@pytest.mark.parametrize("space", SPACES)
def test_every_rank_and_its_transpose(space: tuple[int, ...]) -> None:
    rank = len(space)

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        first = emit(op.nn.relu(convolved(emit, x, 8, 3)))
        pooled = emit(
            getattr(op.nn, f"max_pool{rank}d")(
                first, [3] * rank, strides=[2] * rank, padding=[1] * 2 * rank
            )
        )
        wide = emit(op.add(convolved(emit, pooled, 8, 8), pooled))
        mean = emit(getattr(op.nn, f"avg_pool{rank}d")(wide, [2] * rank))
        up = doubled(emit, mean, 4, 8)
        squeezed = emit(op.mean(up, axis=list(range(2, rank + 2)), keepdims=True))
        return op.multiply(up, emit(op.sigmoid(squeezed)))

    check(build(body, (2, 3, *space)), permutes=2)


@pytest.mark.parametrize("space", SPACES)
def test_norms_that_name_their_axes_follow(space: tuple[int, ...]) -> None:
    axes = list(range(2, len(space) + 2))

    def body(emit: Emit, x: relax.Expr, gain: relax.Expr) -> relax.Expr:
        y = convolved(emit, x, 8, 3)
        y = emit(op.nn.group_norm(y, gain, weights(8), 4, channel_axis=1, axes=axes))
        y = emit(op.nn.silu(y))
        y = emit(op.nn.instance_norm(y, weights(8), gain, channel_axis=1, axes=axes))
        return convolved(emit, y, 4, 8)

    check(build(body, (2, 3, *space), (8,)), permutes=2)


@pytest.mark.parametrize("space", SPACES)
def test_dense_layers_after_a_flattened_volume_follow(space: tuple[int, ...]) -> None:
    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = convolved(emit, x, 8, 3)
        flat = emit(op.reshape(y, (2, 8 * int(np.prod(space)))))
        return op.matmul(flat, weights(8 * int(np.prod(space)), 5))

    check(build(body, (2, 3, *space)), permutes=1)


def test_sequences_go_into_a_one_dimensional_convolution_as_they_are() -> None:
    """(batch, length, channels) is channels last; the permutations around are undone."""

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = convolved(emit, emit(op.permute_dims(x, [0, 2, 1])), 8, 8)
        y = emit(op.permute_dims(emit(op.nn.gelu(y)), [0, 2, 1]))
        return op.add(y, x)

    check(build(body, (2, 16, 8)), permutes=0)


def test_mixing_tokens_beside_convolutions_costs_no_more_permutations() -> None:
    """Of three axes nobody knows whether a permutation brings channels first."""

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        image = conv(emit, x, 8, 3)
        tokens = emit(op.permute_dims(emit(op.reshape(image, (1, 8, 36))), [0, 2, 1]))
        turned = emit(op.permute_dims(tokens, [0, 2, 1]))
        mixed = emit(op.matmul(turned, weights(36, 36)))
        tokens = emit(op.add(tokens, emit(op.permute_dims(mixed, [0, 2, 1]))))
        return op.nn.layer_norm(tokens, weights(8), weights(8), axes=[-1])

    check(build(body, (1, 3, 6, 6)), permutes=3)


def test_what_has_an_axis_follows() -> None:
    """PReLUs, padding by reflection (which is a gather) and nearest neighbours."""
    mirrored = relax.const(np.array([1, 0, 1, 2, 3, 4, 5, 4]))

    def body(emit: Emit, x: relax.Expr, slope: relax.Expr) -> relax.Expr:
        y = emit(op.nn.prelu(conv(emit, x, 8, 3), slope, axis=1))
        y = emit(op.take(emit(op.take(y, mirrored, axis=2)), mirrored, axis=3))
        y = emit(op.repeat(emit(op.repeat(y, 2, axis=2)), 2, axis=-1))
        return conv(emit, emit(op.flip(y, axis=1)), 4, 8)

    check(build(body, (2, 3, 6, 6), (8,)), permutes=2)


@pytest.mark.parametrize("blocks_first", [False, True])
def test_pixels_are_shuffled_by_one_permutation(blocks_first: bool) -> None:
    split = (2, 3, 3, 2, 6, 5) if blocks_first else (2, 2, 3, 3, 6, 5)
    order = [0, 3, 4, 1, 5, 2] if blocks_first else [0, 1, 4, 2, 5, 3]

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        blocks = emit(op.reshape(conv(emit, x, 18, 3), split))
        y = emit(op.reshape(emit(op.permute_dims(blocks, order)), (2, 2, 18, 15)))
        return conv(emit, emit(op.nn.relu(y)), 4, 2)

    check(build(body, (2, 3, 6, 5)), permutes=3)


@pytest.mark.parametrize("space", SPACES)
def test_convolutions_of_single_places_are_products(space: tuple[int, ...]) -> None:
    """Of two axes every library knows the convolution."""

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = emit(op.nn.gelu(convolved(emit, x, 8, 3)))
        wide = emit(op.nn.silu(convolved(emit, y, 16, 8, 1)))
        strided = convolved(emit, wide, 8, 16, 1, strides=2)
        return emit(op.nn.relu(strided))

    found = operators(check(build(body, (2, 3, *space)), permutes=2))
    assert found["matmul"] == (len(space) != 2)
    assert found[f"nn.conv{len(space)}d"] == 3 - (len(space) != 2)


@pytest.mark.parametrize("method", ["nearest_neighbor", "linear"])
@pytest.mark.parametrize("space", SPACES[1:])
def test_resizing_follows(space: tuple[int, ...], method: str) -> None:
    resize = op.image.resize2d if len(space) == 2 else op.image.resize3d
    layout = "NCHW" if len(space) == 2 else "NCDHW"

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = convolved(emit, x, 8, 3)
        size = relax.ShapeExpr([2 * n for n in space])
        y = emit(resize(y, size, layout=layout, method=method))
        return convolved(emit, emit(op.nn.relu(y)), 4, 8)

    check(build(body, (2, 3, *space)), permutes=2)
