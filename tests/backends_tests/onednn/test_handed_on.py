"""In bfloat16: what is handed on as it is, or added to by convolutions, is written rounded."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from collage.backends.devices.cpu_flags import cpu_flags_here
from collage.cost.reference import evaluate, largest_error
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.onednn.regions import Regions, random_inputs, run_elsewhere

_HALF_A_DIGIT = 2.0**-8
"""What rounding to bfloat16 changes of a number at most."""

SEED = random.randrange(1 << 30)

Body = Callable[[Emit, relax.Expr], relax.Expr]


def _conv(emit: Emit, x: relax.Expr, made: int, taps: int = 1, step: int = 1) -> relax.Expr:
    width = int(x.ty.shape[1])
    weights = constant(made, width, taps, taps, scale=(width * taps**2) ** -0.5)
    return emit(op.nn.conv2d(x, weights, strides=[step] * 2, padding=[taps // 2] * 2))


def _fire(emit: Emit, x: relax.Expr) -> relax.Expr:
    """As SqueezeNet has them: two branches joined, and a pool."""
    y = emit(op.nn.relu(_conv(emit, x, 64, 3)))
    y = emit(op.nn.max_pool2d(y, (3, 3), (2, 2)))
    for _ in range(2):
        squeezed = emit(op.nn.relu(_conv(emit, y, 32)))
        branches = [emit(op.nn.relu(_conv(emit, squeezed, 64, taps))) for taps in (1, 3)]
        y = emit(op.concat(branches, axis=1))
    return _conv(emit, emit(op.nn.max_pool2d(y, (3, 3), (2, 2))), 32)


def _scaled(emit: Emit, x: relax.Expr) -> relax.Expr:
    shape = (1, int(x.ty.shape[1]), 1, 1)
    return emit(op.add(emit(op.multiply(x, constant(*shape))), constant(*shape)))


def _scaled_before(emit: Emit, x: relax.Expr) -> relax.Expr:
    """As networks have them whose norms stand before the products; joins are scaled, too."""
    y = _conv(emit, x, 40, 3)
    for block in range(3):
        inner = emit(op.nn.relu(_scaled(emit, y)))
        if block == 1:
            inner = emit(op.concat([inner, emit(op.nn.relu(_scaled(emit, inner)))], axis=1))
        inner = emit(op.nn.relu(_scaled(emit, _conv(emit, inner, 72))))
        y = emit(op.add(_conv(emit, inner, 40, 3), y))
    return _conv(emit, emit(op.nn.relu(_scaled(emit, y))), 24)


def _residual(emit: Emit, x: relax.Expr) -> relax.Expr:
    """As ResNet has them; the mean at the end is of what the last addition gives."""
    y = emit(op.nn.relu(_conv(emit, x, 64, 3)))
    for block in range(3):
        inner = emit(op.nn.relu(_conv(emit, y, 32)))
        inner = emit(op.nn.relu(_conv(emit, inner, 32, 3, 2 if block == 1 else 1)))
        kept = _conv(emit, y, 64, 1, 2) if block == 1 else y
        y = emit(op.nn.relu(emit(op.add(_conv(emit, inner, 64), kept))))
    return emit(op.mean(y, axis=[2, 3], keepdims=True))


def _added_and_read(emit: Emit, x: relax.Expr) -> relax.Expr:
    """What is added is read by others than products, too."""
    y = _conv(emit, x, 64, 3)
    kept = emit(op.sigmoid(y))
    z = emit(op.add(_conv(emit, y, 64, 3), y))
    return emit(op.multiply(emit(op.add(_conv(emit, z, 64), z)), kept))


_KINDS = (
    "pool", "average", "concat", "slice", "pad", "resize", "conv", "add", "relu", "scale", "gate",
)  # fmt: skip


def _drawn(seed: int) -> Body:
    """Whatever hands numbers on, between convolutions and additions."""

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        draw = random.Random(seed)
        there = [_conv(emit, x, 32, 3), _conv(emit, x, 64, 3)]
        for _ in range(draw.randint(6, 9)):
            y = draw.choice(there[-3:])
            channels, height, width = (int(d) for d in list(y.ty.shape)[1:])
            kind = draw.choice(
                ["pool", "concat", "slice", "pad", "resize", "conv", "add", "relu", "scale", "gate"]
            )
            alike = [z for z in there if [*z.ty.shape][2:] == [*y.ty.shape][2:]]
            twins = [z for z in alike if int(z.ty.shape[1]) == channels]
            if kind == "pool":
                y = emit(op.nn.max_pool2d(y, (3, 3), (1, 1), (1, 1)))
            elif kind == "average":
                y = emit(op.nn.avg_pool2d(y, (3, 3), (1, 1), (1, 1)))
            elif kind == "concat":
                y = emit(op.concat([y, draw.choice(alike)], axis=1))
            elif kind == "slice":
                begin = draw.choice([0, 1, channels // 2])
                y = emit(op.strided_slice(y, axes=[1], begin=[begin], end=[channels]))
            elif kind == "pad" and height < 24:
                y = emit(op.nn.pad(y, [0, 0, 0, 0, 1, 0, 0, 2]))
            elif kind == "resize" and height < 16:
                size = relax.ShapeExpr([2 * height, 2 * width])
                y = emit(
                    op.image.resize2d(
                        y, size, layout="NCHW", method="nearest_neighbor",
                        coordinate_transformation_mode="asymmetric", rounding_method="floor",
                    )
                )  # fmt: skip
            elif kind == "add":
                y = emit(op.add(_conv(emit, y, channels, 3), y))
            elif kind == "relu":
                y = emit(op.nn.relu(y))
            elif kind == "scale":
                y = emit(op.nn.silu(_scaled(emit, y)))
            elif kind == "gate":
                y = emit(op.multiply(y, emit(op.sigmoid(draw.choice(twins)))))
            there.append(_conv(emit, y, draw.choice([16, 32, 48, 64]), draw.choice([1, 3])))
        last = [_conv(emit, emit(op.nn.max_pool2d(y, (2, 2), (2, 2))), 16) for y in there[-2:]]
        means = [emit(op.mean(y, axis=[2, 3], keepdims=True)) for y in last]
        return emit(op.concat(means, axis=1))

    return body


GRAPHS = {
    "fire": graph([(1, 3, 33, 35)], _fire),
    "residual": graph([(2, 3, 18, 20)], _residual),
    "scaled_before": graph([(2, 3, 11, 13)], _scaled_before),
    "added_and_read": graph([(1, 3, 12, 10)], _added_and_read),
    **{f"drawn{i}": graph([(1 + i % 2, 3, 9, 11)], _drawn(SEED + i)) for i in range(12)},
}


@pytest.fixture(scope="module", params=["auto", "blocked", "nhwc", "plain"])
def rounding(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Regions:
    folder = tmp_path_factory.mktemp("handed_on")
    return Regions(GRAPHS, folder, {"precision": "bfloat16", "layout": request.param})


@pytest.mark.parametrize("name", GRAPHS)
def test_they_are_right(rounding: Regions, name: str) -> None:
    for _ in range(2):  # the second call finds everything built
        inputs = random_inputs(GRAPHS[name], np.random.default_rng())
        for got, wanted in zip(
            rounding.run(name, inputs), evaluate(GRAPHS[name], inputs), strict=True
        ):
            assert largest_error(got, wanted) < 8 * _HALF_A_DIGIT, SEED


@pytest.mark.skipif("amx_bf16" not in cpu_flags_here(), reason="multiplies in vectors")
@pytest.mark.parametrize("name", ["fire", "residual", "scaled_before"])
def test_between_products_all_is_rounded(tmp_path: Path, name: str) -> None:
    """But for what is read by others at the end, and the picture that is given."""
    options = {"precision": "bfloat16", "layout": "auto"}
    regions = Regions({name: GRAPHS[name]}, tmp_path / "regions", options)
    given = {name: random_inputs(GRAPHS[name], np.random.default_rng())[0]}
    _, told = run_elsewhere(regions.path, given, tmp_path, ONEDNN_VERBOSE="1")
    steps = [line for line in told.splitlines() if ",exec,cpu," in line]
    first = next(i for i, line in enumerate(steps) if ",convolution," in line)
    behind = steps[first + 1 :]
    last = max(i for i, line in enumerate(behind) if ",convolution," in line)
    between = behind[:last]
    assert [line for line in between if "dst_bf16" in line]
    assert not [line for line in between if "dst_f32" in line]
