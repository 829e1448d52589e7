"""Channels picked, operands broadcast and axes reduced as no kernel of the library does it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from collage.backends.onednn.fuse import optimize
from collage.backends.onednn.graph import OpKind
from collage.backends.onednn.partition import import_function
from collage.backends.relax.static_shape import static_shape
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.onednn.cases import number, shuffle
from tests.backends_tests.onednn.region_graphs import conv
from tests.backends_tests.onednn.regions import Regions, regions


def shuffle_units(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Two units of a ShuffleNet: a half passes through both; all of it is read in the end."""
    for _ in range(2):
        kept, half = (emit(op.strided_slice(x, [1], [begin], [begin + 8])) for begin in (0, 8))
        joined = emit(op.concat([kept, emit(op.nn.relu(conv(emit, half, 8, 8)))], axis=1))
        x = emit(shuffle(emit, joined, static_shape(joined), 2))
    return emit(op.add(conv(emit, x, 16, 16, size=1), x))


def slices_of_a_shuffle(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Channels of three tensors in four groups, of which some pixels are left out as well."""
    joined = emit(op.concat([conv(emit, x, 11, 16), x, conv(emit, x, 5, 16)], axis=1))
    y = emit(shuffle(emit, joined, static_shape(joined), 4))
    few = emit(op.strided_slice(y, [1], [3], [20]))
    corner = emit(op.strided_slice(y, [1, 2], [3, 1], [20, 5]))
    return relax.Tuple([few, emit(op.tanh(corner)), emit(op.strided_slice(few, [1], [2], [9]))])


def slices_joined(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Both halves of a value beside what is made of one; and halves the other way round."""
    y = emit(op.nn.silu(conv(emit, x, 32, 16)))
    first, second = (emit(op.strided_slice(y, [1], [b], [b + 16])) for b in (0, 16))
    made = emit(op.add(second, emit(op.nn.silu(conv(emit, second, 16, 16)))))
    joined = emit(op.concat([first, second, made], axis=1))
    turned = emit(op.concat([second, first], axis=1))
    return emit(op.add(conv(emit, joined, 8, 48, size=1), conv(emit, turned, 8, 32, size=1)))


def expected_bins(emit: Emit, x: relax.Expr) -> relax.Expr:
    """A softmax, a product and a sum along an axis in the middle."""
    y = emit(op.reshape(conv(emit, x, 20, 16), (2, 4, 5, 72)))
    shares = emit(op.nn.softmax(y, axis=2))
    return emit(op.sum(emit(op.multiply(shares, constant(5, 1))), [2]))


def broadcast_anywhere(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Operands along the first, the last and middle axes, of values in another order too."""
    y = emit(op.permute_dims(x, [0, 2, 3, 1]))
    y = emit(op.nn.relu(emit(op.multiply(y, constant(1, 9, 1, 16)))))
    y = emit(op.subtract(y, constant(2, 1, 8, 1)))
    y = emit(op.maximum(emit(op.exp(emit(op.multiply(y, number(0.1))))), constant(9, 1, 1)))
    return emit(op.divide(y, emit(op.exp(emit(op.mean(y, [1, 3], keepdims=True))))))


def reduced(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Over first, middle and last axes, some of them of a value in another order."""
    y = emit(op.permute_dims(x, [0, 2, 3, 1]))
    results = [op.sum(x, [1]), op.max(x, [0]), op.min(x, [2], keepdims=True), op.mean(x, [0, 1])]
    results += [op.mean(y, [1, 2]), op.max(y, [3]), op.sum(y, [1]), op.sum(x, [0, 2])]
    return relax.Tuple([emit(result) for result in results])


def averaged(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Few channels of many pixels: all threads have a part of each sum."""
    y = emit(op.nn.relu(conv(emit, x, 24, 3)))
    return emit(op.mean(y, [2, 3], keepdims=True))


def gated_heads(emit: Emit, x: relax.Expr) -> relax.Expr:
    """No multiple of a block of channels: what fills it up is not to become one half."""
    y = emit(op.reshape(conv(emit, x, 20, 16), (2, 20, 72)))
    return emit(op.sigmoid(emit(op.concat([y, y], axis=2))))


def gate_of(emit: Emit, y: relax.Expr, channels: int) -> relax.Expr:
    """A number for each channel, from all pixels."""
    gate = emit(op.mean(y, [2, 3], keepdims=True))
    gate = emit(op.nn.relu(conv(emit, gate, 4, channels, size=1)))
    return emit(op.sigmoid(conv(emit, gate, channels, 4, size=1)))


def gated(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Squeezed, excited, convolved by windows of one and of more pixels, and added to others."""
    y = emit(op.nn.silu(conv(emit, x, 20, 16)))
    y = emit(op.multiply(y, gate_of(emit, y, 20)))
    y = emit(op.nn.silu(conv(emit, y, 16, 20, size=1)))
    z = emit(op.multiply(gate_of(emit, y, 16), y))
    return emit(op.nn.relu(emit(op.add(conv(emit, z, 3, 16), constant(1, 3, 9, 8)))))


def gated_and_read_twice(emit: Emit, x: relax.Expr) -> relax.Expr:
    """The excited picture is read by others too, and one gate scales two pictures."""
    gate = gate_of(emit, x, 16)
    y = emit(op.multiply(x, gate))
    z = emit(op.multiply(emit(op.tanh(x)), gate))
    return emit(op.add(emit(op.add(conv(emit, y, 16, 16, size=1), y)), conv(emit, z, 16, 16)))


X = (2, 16, 9, 8)
ONE = (1, 16, 9, 8)
GRAPHS = {
    "shuffle_units": graph([ONE], shuffle_units),
    "shuffle_units_batch": graph([X], shuffle_units),
    "slices_of_a_shuffle": graph([X], slices_of_a_shuffle),
    "slices_joined": graph([ONE], slices_joined),
    "slices_joined_batch": graph([X], slices_joined),
    "expected_bins": graph([X], expected_bins),
    "broadcast_anywhere": graph([X], broadcast_anywhere),
    "reduced": graph([X], reduced),
    "averaged": graph([(1, 3, 60, 61)], averaged),
    "gated": graph([ONE], gated),
    "gated_batch": graph([X], gated),
    "gated_and_read_twice": graph([ONE], gated_and_read_twice),
    "gated_heads": graph([X], gated_heads),
}


@pytest.fixture(scope="module", params=["auto", "nhwc", "blocked", "plain"])
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Regions:
    folder = tmp_path_factory.mktemp(f"strided_{request.param}")
    return Regions(GRAPHS, folder, {"layout": request.param})


@pytest.mark.parametrize("name", GRAPHS)
def test_agrees_with_the_reference(compiled: Regions, name: str) -> None:
    compiled.require_reference(name)


def _kinds(compiled: Regions, name: str) -> list[OpKind]:
    (region,) = (
        function
        for function in regions(compiled.module)
        if str(function.attrs["global_symbol"]).startswith(f"{name}_region")
    )
    planned = import_function(region)
    optimize(planned)
    return [node.kind for node in planned.nodes]


def test_units_of_a_shuffle_move_each_channel_once(compiled: Regions) -> None:
    """Into what is convolved next; the half that passes through is never written."""
    kinds = _kinds(compiled, "shuffle_units")
    assert kinds.count(OpKind.SELECT) == 2
    assert not {OpKind.CONCAT, OpKind.SHUFFLE} & set(kinds)
    assert kinds.count(OpKind.SLICE) == 1  # the first unit's half


def test_what_was_cut_and_joined_again_is_not_cut(compiled: Regions) -> None:
    kinds = _kinds(compiled, "slices_joined")
    assert kinds.count(OpKind.SLICE) == 2  # both halves are read by others


def test_few_weights_are_scaled_in_place_of_a_picture(compiled: Regions) -> None:
    kinds = _kinds(compiled, "gated")
    assert kinds.count(OpKind.SCALE_WEIGHTS) == 2
    assert OpKind.BINARY not in kinds
    # Two samples have two gates.
    assert OpKind.SCALE_WEIGHTS not in _kinds(compiled, "gated_batch")


def many_rows(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Averages of a picture whose channels lie side by side."""
    y = emit(op.nn.relu(emit(op.permute_dims(x, [0, 2, 3, 1]))))
    return op.mean(y, [1, 2])


def test_sums_of_many_keep_their_digits(tmp_path: Path) -> None:
    """Added one by one, thousands of numbers of one sign are off by ten units."""
    shape = (1, 8, 200, 200)
    x = np.random.default_rng().random(shape, np.float32) + np.float32(1.0)
    (mean,) = Regions({"many": graph([shape], many_rows)}, tmp_path, {}).run("many", [x])
    np.testing.assert_allclose(mean, x.mean((2, 3), dtype=np.float64), rtol=3e-7)
