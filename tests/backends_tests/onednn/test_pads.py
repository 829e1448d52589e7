"""Constant borders inside of regions: of every number, layout and axis, call after call."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from collage.cost.reference import evaluate, largest_error
from collage.testing.graphs import Emit, graph
from tests.backends_tests.onednn.region_graphs import conv
from tests.backends_tests.onednn.regions import Regions, regions

SHAPE = (2, 6, 9, 8)
PIXELS = (0, 0, 0, 0, 1, 2, 0, 3)


def _linear_attention(emit: Emit, x: relax.Expr) -> relax.Expr:
    """A row of ones under the values sums up the weights."""
    rows = emit(op.reshape(conv(emit, x, 12, 6), (2, 3, 4, 72)))
    values = emit(op.nn.pad(rows, (0, 0, 0, 0, 0, 1, 0, 0), pad_value=1.0))
    keys = emit(op.permute_dims(emit(op.nn.relu(rows)), [0, 1, 3, 2]))
    return emit(op.matmul(emit(op.matmul(values, keys)), rows))


def _of_a_filled_up_block(emit: Emit, x: relax.Expr) -> relax.Expr:
    y = emit(op.nn.pad(conv(emit, x, 20, 6), PIXELS, pad_value=0.75))
    return conv(emit, y, 8, 20)


def _before_a_convolution(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Which pads with zeros itself."""
    return conv(emit, emit(op.nn.pad(x, PIXELS, pad_value=-0.5)), 16, 6)


def _before_a_pool(emit: Emit, x: relax.Expr) -> relax.Expr:
    y = emit(op.nn.pad(conv(emit, x, 16, 6), PIXELS, pad_value=-math.inf))
    return emit(op.nn.relu(emit(op.nn.max_pool2d(y, (3, 3), (2, 2)))))


def _of_channels(emit: Emit, x: relax.Expr) -> relax.Expr:
    y = emit(op.nn.pad(conv(emit, x, 16, 6), (0, 0, 3, 13, 0, 0, 0, 0), pad_value=2.0))
    return conv(emit, y, 8, 32)


def _joined_and_returned(emit: Emit, x: relax.Expr) -> relax.Expr:
    first = emit(op.nn.pad(emit(op.exp(x)), PIXELS, pad_value=3.0))
    second = emit(op.nn.pad(emit(op.abs(x)), PIXELS))
    return relax.Tuple([emit(op.concat([first, second], axis=1)), first])


GRAPHS = (
    _linear_attention, _of_a_filled_up_block, _before_a_convolution, _before_a_pool, _of_channels,
    _joined_and_returned,
)  # fmt: skip


@pytest.fixture(scope="module", params=["auto", "blocked", "nhwc", "plain"])
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Regions:
    graphs = {make.__name__.strip("_"): graph([SHAPE], make) for make in GRAPHS}
    folder = tmp_path_factory.mktemp(f"pads_{request.param}")
    return Regions(graphs, folder, {"layout": request.param})


@pytest.mark.parametrize("make", GRAPHS)
def test_as_the_reference_call_after_call(
    compiled: Regions, make: Callable[..., relax.Expr]
) -> None:
    name, rng = make.__name__.strip("_"), np.random.default_rng()
    for _ in range(3):
        x = rng.standard_normal(SHAPE).astype(np.float32)
        found, wanted = compiled.run(name, [x]), evaluate(compiled.graphs[name], [x])
        assert len(found) == len(wanted)
        for mine, other in zip(found, wanted, strict=True):
            assert largest_error(mine, other) < 2e-6


def test_each_is_one_region(compiled: Regions) -> None:
    assert len(regions(compiled.module)) == len(GRAPHS)
