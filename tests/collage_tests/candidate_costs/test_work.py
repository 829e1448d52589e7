"""The fewest products that any kernel does."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.candidate_costs.work import GraphWork
from collage.search import DataflowGraph
from collage.testing.graphs import constant, graph

CONVOLUTIONS = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}


def convolution(extents: tuple[int, ...], taps: tuple[int, ...], **given: object) -> tvm.IRModule:
    weights = constant(8, 8, *taps)

    def body(_: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return CONVOLUTIONS[len(taps)](x, weights, **given)

    return graph([(1, 8, *extents)], body)


@pytest.mark.parametrize(
    "extents, taps, given, share",
    [
        ((16, 16), (3, 3), {"padding": 1}, 1 / 4),
        ((16, 16), (3, 3), {}, 1 / 4),
        ((16, 16), (5, 5), {}, 36 / 100),
        ((16, 16), (7, 7), {}, 1),
        ((16, 16), (1, 3), {"padding": (0, 1)}, 1 / 2),
        ((16,), (3,), {"dilation": 2}, 1 / 2),
        ((4, 16, 16), (3, 1, 1), {"padding": (1, 0, 0)}, 1 / 2),
        # Rows and columns in tiles; between planes, those with one of 2 * 3 taps are left out.
        ((4, 16, 16), (3, 3, 3), {"padding": 1, "strides": (2, 1, 1)}, 1 / 4 * 5 / 6),
        ((4, 16, 16), (1, 3, 3), {"padding": (0, 1, 1)}, 1 / 4),
        ((1, 1), (3, 3), {"padding": 1}, 1 / 9),
        ((8,), (7,), {"padding": 3, "dilation": 1}, (8 * 7 - 12) / 56),
        ((9,), (2,), {"padding": (3, 0), "strides": 4, "dilation": 5}, 3 / 4),
    ],
)
def test_the_fewest_products_are_those_of_tiles_inside_of_the_picture(
    extents: tuple[int, ...], taps: tuple[int, ...], given: dict[str, object], share: float
) -> None:
    mod = convolution(extents, taps, **given)
    work = GraphWork(DataflowGraph.from_function(mod["main"])).of(0b1)
    assert work.fewest_flops == pytest.approx(share * work.flops, abs=1)
