"""Channels joined to what was joined before, and chains of elementwise operators in one pass."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from collage.backends.devices.cpu_flags import cpu_flags_here
from collage.backends.onednn.graph import Graph, OpKind, Source, Tensor
from collage.backends.onednn.idioms import simplify
from collage.cost.reference import DEFAULT_RTOL, evaluate, largest_error
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.onednn.regions import Regions, random_inputs, run_elsewhere

_HALF_A_DIGIT = 2.0**-8
"""What rounding to bfloat16 changes of a number at most."""

Body = Callable[[Emit, relax.Expr], relax.Expr]
_CONV = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}


def _by_channel(channels: int, rank: int) -> relax.Expr:
    return constant(1, channels, *(1,) * rank)


def _dense_block(channels: int, growth: int, rank: int, layers: int = 4) -> Body:
    """As DenseNet has them: all that was computed is joined, scaled and shifted again and again."""

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        conv = _CONV[rank]
        parts = [emit(conv(x, constant(channels, 3, *(1,) * rank, scale=3**-0.5)))]
        for layer in range(layers):
            width = channels + layer * growth
            whole = emit(op.concat(parts, axis=1)) if layer else parts[0]
            y = emit(op.multiply(whole, _by_channel(width, rank)))
            y = emit(op.nn.relu(emit(op.add(y, _by_channel(width, rank)))))
            weights = constant(growth, width, *(3,) * rank, scale=(3**rank * width) ** -0.5)
            parts.append(emit(conv(y, weights, padding=[1] * rank)))
        last = constant(8, channels + layers * growth, *(1,) * rank, scale=0.1)
        return emit(conv(emit(op.concat(parts, axis=1)), last))

    return body


def _read_by_others(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Parts of what grows are read by what knows nothing of it, and returned."""
    a = emit(op.nn.conv2d(x, constant(20, 3, 1, 1)))
    b = emit(op.nn.conv2d(x, constant(12, 3, 1, 1)))
    first = emit(op.concat([a, b], axis=1))
    pooled = emit(op.nn.max_pool2d(first, (3, 3), (1, 1), (1, 1)))
    second = emit(op.concat([a, b, pooled], axis=1))
    third = emit(op.concat([second, emit(op.nn.relu(first))], axis=1))
    mean = emit(op.mean(third, axis=[2, 3], keepdims=True))
    return emit(op.add(emit(op.nn.conv2d(third, constant(96, 96, 1, 1, scale=0.1))), mean))


def _branches(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Several joins begin alike and go on differently, and are all read at the end."""
    parts = [emit(op.nn.conv2d(x, constant(16 + 4 * i, 3, 1, 1))) for i in range(5)]
    a, b, c, d, e = parts
    joined: list[relax.Expr] = []
    for first, more in (([a, b], [c, d]), ([a, c], [d, e])):
        begin = emit(op.concat(first, axis=1))
        joined += [emit(op.concat([begin, other], axis=1)) for other in more]
    joined += [emit(op.concat([each, e], axis=1)) for each in joined]
    scaled = [
        emit(op.nn.relu(emit(op.multiply(each, _by_channel(int(each.ty.shape[1]), 2)))))
        for each in joined
    ]
    sums = [
        emit(op.nn.conv2d(each, constant(8, int(each.ty.shape[1]), 1, 1, scale=0.1)))
        for each in scaled
    ]
    return emit(op.concat(sums, axis=1))


def _joins(seed: int) -> Body:
    """Joins of whatever there is, each read by a chain, a pool or a product, or by later joins."""

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        draw = random.Random(seed)
        there = [emit(op.nn.conv2d(x, constant(4 * i, 3, 1, 1))) for i in (2, 3, 5)]
        read: list[relax.Expr] = []
        for _ in range(draw.randint(4, 7)):
            begin = draw.choice(there[-4:])
            joined = emit(op.concat([begin, *draw.sample(there, draw.randint(1, 2))], axis=1))
            there.append(joined)
            width = int(joined.ty.shape[1])
            kind = draw.choice(["chain", "pool", "product", "later"])
            y = joined
            if kind == "chain":
                y = emit(op.nn.relu(emit(op.multiply(y, _by_channel(width, 2)))))
            elif kind == "pool":
                y = emit(op.nn.max_pool2d(y, (3, 3), (1, 1), (1, 1)))
            if kind != "later":
                read.append(emit(op.nn.conv2d(y, constant(8, width, 1, 1, scale=0.1))))
        weights = constant(8, int(there[-1].ty.shape[1]), 1, 1, scale=0.1)
        read.append(emit(op.nn.conv2d(there[-1], weights)))
        return emit(op.concat(read, axis=1))

    return body


SEED = random.randrange(1 << 30)


def _chain(*steps: Callable[[relax.Expr], relax.Expr]) -> Body:
    """Something between two convolutions."""

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = emit(op.nn.conv2d(x, constant(36, 3, 3, 3, scale=0.2)))
        z = emit(op.concat([y, emit(op.sigmoid(y))], axis=1))
        for step in steps:
            z = emit(step(z))
        return emit(op.nn.conv2d(z, constant(40, 72, 1, 1, scale=0.1)))

    return body


def _normed(emit: Emit, x: relax.Expr) -> relax.Expr:
    """A block of a transformer: the norm's result is read by a product alone."""
    y = emit(op.nn.layer_norm(x, constant(48), constant(48), axes=[-1]))
    y = emit(op.nn.gelu(emit(op.matmul(y, constant(48, 96, scale=48**-0.5)))))
    y = emit(op.multiply(y, constant(96)))
    return emit(op.add(emit(op.matmul(y, constant(96, 48, scale=96**-0.5))), x))


GRAPHS = {
    "block": graph([(1, 3, 12, 12)], _dense_block(24, 16, 2)),
    "odd_block": graph([(2, 3, 7, 9)], _dense_block(19, 5, 2)),
    "line": graph([(2, 3, 30)], _dense_block(24, 12, 1)),
    "volume": graph([(1, 3, 4, 5, 6)], _dense_block(16, 8, 3, layers=2)),
    "read_by_others": graph([(2, 3, 9, 11)], _read_by_others),
    "branches": graph([(2, 3, 6, 7)], _branches),
    **{f"joins{i}": graph([(1 + i % 2, 3, 6, 7)], _joins(SEED + i)) for i in range(10)},
    "clipped": graph(
        [(1, 3, 14, 14)],
        _chain(
            lambda z: op.multiply(z, relax.const(1.5)),
            lambda z: op.subtract(z, _by_channel(72, 2)),
            lambda z: op.clip(z, -0.5, 0.75),
        ),
    ),
    "leaky": graph(
        [(2, 3, 14, 14)],
        _chain(lambda z: op.add(z, _by_channel(72, 2)), lambda z: op.nn.leakyrelu(z, 0.2)),
    ),
    "bounded": graph(
        [(1, 3, 8, 8)],
        _chain(
            lambda z: op.maximum(z, _by_channel(72, 2)),
            lambda z: op.minimum(z, _by_channel(72, 2)),
            lambda z: op.divide(z, relax.const(3.0)),
        ),
    ),
    "normed": graph([(2, 21, 48)], _normed),
}


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def compiled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Regions, float]:
    """Regions channels last, in a precision, and by how much they may be off."""
    folder = tmp_path_factory.mktemp(request.param)
    options = {"precision": request.param, "layout": "nhwc"}
    rtol = DEFAULT_RTOL if request.param == "float32" else 6 * _HALF_A_DIGIT
    return Regions(GRAPHS, folder / "regions", options), rtol


@pytest.mark.parametrize("name", GRAPHS)
def test_they_are_right(compiled: tuple[Regions, float], name: str) -> None:
    regions, rtol = compiled
    for _ in range(2):  # the second call finds everything built
        inputs = random_inputs(GRAPHS[name], np.random.default_rng())
        for got, wanted in zip(
            regions.run(name, inputs), evaluate(GRAPHS[name], inputs), strict=True
        ):
            assert largest_error(got, wanted) < rtol, SEED


def test_each_part_of_a_block_is_copied_once(
    compiled: tuple[Regions, float], tmp_path: Path
) -> None:
    """Of four layers: five parts to their places, the picture and the result to other layouts."""
    regions, _ = compiled
    given = {"block": random_inputs(GRAPHS["block"], np.random.default_rng())[0]}
    _, told = run_elsewhere(regions.path, given, tmp_path, ONEDNN_VERBOSE="1")
    steps = [line for line in told.splitlines() if ",exec,cpu," in line]
    # What comes before the first convolution packs weights, once.
    first = next(i for i, line in enumerate(steps) if ",convolution," in line)
    copies = [line for line in steps[first:] if ",reorder," in line]
    rounded = "bfloat16" in str(regions.target.options) and "avx512_bf16" in cpu_flags_here()
    assert len(copies) <= 5 + 1 + (2 if rounded else 1)
    assert not [line for line in steps if ",binary," in line and "1x56x" in line]


def test_what_is_no_number_stays_none(compiled: tuple[Regions, float]) -> None:
    regions, _ = compiled
    x = np.ones((1, 3, 12, 12), np.float32)
    x[0, 0, 3, 4] = np.nan
    (found,) = regions.run("block", [x])
    assert np.isnan(found[0, :, 3, 4]).all()
    assert np.isfinite(found[0, :, 11, 11]).all()


def test_a_longer_join_begins_with_a_shorter_one() -> None:
    """Whatever the order of the two; those along other axes stay as they are."""
    region = Graph()
    parts = [Tensor((1, 4, 6, 6), Source.INPUT, i) for i in range(4)]
    region.inputs = list(parts)
    two = region.add(OpKind.CONCAT, parts[:2], (1, 8, 6, 6), [1])
    other = region.add(OpKind.CONCAT, parts[:2], (1, 4, 12, 6), [2])
    three = region.add(OpKind.CONCAT, parts[:3], (1, 12, 6, 6), [1])
    four = region.add(OpKind.CONCAT, parts, (1, 16, 6, 6), [1])
    swapped = region.add(OpKind.CONCAT, [parts[1], parts[0]], (1, 8, 6, 6), [1])
    region.outputs = [two, other, three, four, swapped]
    simplify(region)
    reads = {node.output: node.inputs for node in region.nodes}
    assert reads[four] == [three, parts[3]]
    assert reads[three] == [two, parts[2]]
    assert reads[two] == reads[other] == parts[:2]
    assert reads[swapped] == [parts[1], parts[0]]
