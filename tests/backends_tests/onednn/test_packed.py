"""How much memory is said to hold weights, beside what kernels pack them into."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.onednn.options import OnednnOptions
from collage.backends.onednn.packed import packed_share
from collage.testing.graphs import Emit, constant, graph

CONVOLUTIONS = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}


def convolution(taps: tuple[int, ...], strides: tuple[int, ...] | int) -> relax.Function:
    weights = constant(16, 8, *taps)

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        return op.nn.relu(emit(CONVOLUTIONS[len(taps)](x, weights, strides=strides)))

    mod: tvm.IRModule = graph([(1, 8, *(12 for _ in taps))], body)
    return mod["main"]


@pytest.mark.parametrize(
    "taps, strides, copies",
    [
        ((3, 3), 1, 4.0),
        ((3, 3), (1, 2), 1.0),
        ((3, 3, 3), (2, 1, 1), 4.0),
        ((1, 3, 3), 1, 4.0),
        ((5, 5), 1, 1.44),
        ((3, 5), 1, 1.0),
        ((1, 3), 1, 2.0),
        ((5,), 1, 1.2),
        ((3,), 2, 1.0),
        ((3, 1, 1), 1, 2.0),
        ((3, 1, 1), (2, 1, 1), 1.0),
        ((1, 1), 1, 1.0),
        ((7, 7), 1, 1.0),
    ],
)
def test_weights_at_points_are_stated(
    taps: tuple[int, ...], strides: tuple[int, ...] | int, copies: float
) -> None:
    function = convolution(taps, strides)
    assert packed_share(function, OnednnOptions()) == pytest.approx(copies)
    assert packed_share(function, OnednnOptions(winograd=False)) == 1.0
