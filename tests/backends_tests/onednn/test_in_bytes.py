"""Convolutions between values rounded to bytes: exact sums, against numpy's integers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.onednn.fuse import optimize
from collage.backends.onednn.graph import Graph, OpKind
from collage.backends.onednn.in_bytes import use_bytes, whole_weights
from collage.backends.onednn.partition import import_function
from collage.cost.reference import evaluate
from collage.normalize import normalize
from collage.testing.graphs import Emit, graph
from tests.backends_tests.onednn.regions import Regions, regions, run_elsewhere

SEED = int(np.random.SeedSequence().entropy) % 2**32
"""New at every run; a failure shows it."""

Array = np.ndarray


@dataclass(frozen=True)
class Steps:
    step: float
    zero: int
    kind: str

    def rounded(self, emit: Emit, x: relax.Expr) -> relax.Expr:
        numbers = relax.const(np.float32(self.step)), relax.const(np.array(self.zero, self.kind))
        there = emit(op.quantize(x, *numbers, axis=1, out_dtype=self.kind))
        return emit(op.dequantize(there, *numbers, axis=1))

    def whole(self, x: Array) -> Array:
        """How many steps values are from zero."""
        limits = np.iinfo(self.kind)
        steps = np.rint(x.astype(np.float32) / np.float32(self.step)).astype(np.int64)
        return np.clip(steps + self.zero, limits.min, limits.max) - self.zero


@dataclass(frozen=True)
class Layer:
    """A convolution between rounded values."""

    x: tuple[int, ...]
    weights: tuple[int, ...]
    given: Steps
    made: Steps
    groups: int = 1
    strides: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    relu: bool = False
    most: int = 127
    extreme: bool = False

    def attributes(self) -> dict[str, object]:
        axes = len(self.x) - 2
        return {
            "strides": self.strides or (1,) * axes,
            "padding": self.padding or (0,) * (2 * axes),
            "dilation": self.dilation or (1,) * axes,
            "groups": self.groups,
        }


_FEW, _MANY = Steps(0.03, 119, "uint8"), Steps(0.11, 7, "uint8")
_SIGNED, _POSITIVE = Steps(0.02, -9, "int8"), Steps(0.05, 0, "uint8")

LAYERS = {
    "picture": Layer((2, 3, 15, 14), (16, 3, 3, 3), _FEW, _MANY, padding=(1, 0, 2, 1)),
    "strided": Layer((1, 32, 13, 13), (24, 32, 3, 3), _SIGNED, _POSITIVE, 1, (2, 2), (1,) * 4),
    "points": Layer((3, 40, 7, 9), (33, 40, 1, 1), _POSITIVE, _SIGNED, relu=True),
    "dilated": Layer((1, 16, 12, 12), (16, 16, 3, 3), _FEW, _SIGNED, dilation=(2, 3)),
    "depthwise": Layer((1, 48, 9, 9), (48, 1, 3, 3), _MANY, _FEW, 48, (1, 2), (1, 1, 1, 1)),
    "odd": Layer((2, 5, 9, 9), (5, 1, 3, 3), _SIGNED, _FEW, 5, (), (0, 2, 1, 1)),
    "grouped": Layer((1, 32, 8, 8), (48, 8, 3, 3), _FEW, _POSITIVE, 4, (), (1,) * 4),
    "threes": Layer((1, 6, 8, 8), (9, 2, 3, 3), _FEW, _POSITIVE, 3),
    "line": Layer((2, 8, 31), (20, 8, 5), _SIGNED, _MANY, 1, (2,), (3, 1)),
    "volume": Layer((1, 16, 5, 6, 7), (16, 16, 3, 3, 3), _FEW, _SIGNED, padding=(1,) * 6),
    "saturated": Layer((1, 64, 6, 6), (32, 64, 3, 3), _SIGNED, Steps(0.002, 3, "uint8")),
}

IN_PAIRS = {f"{name}_in_pairs": replace(layer, most=63) for name, layer in LAYERS.items()}
"""Of weights that leave sums of two products in 16 bits, whatever bytes they meet."""

IN_PAIRS["extreme"] = Layer((1, 32, 9, 9), (16, 32, 3, 3), _SIGNED, _MANY, most=64, extreme=True)


def _weights(rng: np.random.Generator, layer: Layer) -> tuple[Array, Array]:
    whole = rng.integers(-layer.most, layer.most + 1, layer.weights)
    ends = [-layer.most, layer.most]
    whole.reshape(layer.weights[0], -1)[:, 0] = rng.choice(ends, layer.weights[0])
    if layer.extreme:
        whole[:] = rng.choice(ends, (layer.weights[0], *(1,) * (whole.ndim - 1)))
    return whole, rng.uniform(0.001, 0.004, layer.weights[0]).astype("float32")


def _convolve(x: relax.Expr, weights: relax.Expr, layer: Layer) -> relax.Call:
    made = {3: op.nn.conv1d, 4: op.nn.conv2d, 5: op.nn.conv3d}[len(layer.x)]
    return made(x, weights, **layer.attributes())


def _layer(rng: np.random.Generator, layer: Layer) -> tuple[tvm.IRModule, Array, Array, Array]:
    whole, scales = _weights(rng, layer)
    along = (-1, *(1,) * (len(layer.x) - 1))
    floats = whole.astype("float32") * scales.reshape(along)
    bias = rng.normal(0, 0.5, layer.weights[0]).astype("float32")

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = emit(_convolve(layer.given.rounded(emit, x), relax.const(floats), layer))
        y = emit(op.add(y, relax.const(bias.reshape(1, *along[:-1]))))
        y = emit(op.nn.relu(y)) if layer.relu else y
        return layer.made.rounded(emit, y)

    return normalize(graph([layer.x], body)), whole, scales, bias


def _meant(layer: Layer, x: Array, whole: Array, scales: Array, bias: Array) -> Array:
    """The result before it is rounded: sums of whole numbers, then double precision."""
    axes, attributes = len(layer.x) - 2, layer.attributes()
    pads, dilation = attributes["padding"], attributes["dilation"]
    ends = [(0, 0), (0, 0), *zip(pads[:axes], pads[axes:], strict=True)]
    steps = np.pad(layer.given.whole(x), ends)
    kernel = whole.shape[2:]
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    windows = np.lib.stride_tricks.sliding_window_view(steps, reach, tuple(range(2, 2 + axes)))
    every = [slice(None, None, s) for s in attributes["strides"]]
    picks = [slice(None, None, d) for d in dilation]
    windows = windows[(slice(None), slice(None), *every, *picks)]
    per_in, per_out = whole.shape[1], whole.shape[0] // layer.groups
    last = tuple(range(2 + axes, 2 + 2 * axes))
    parts = []
    for group in range(layer.groups):
        some = windows[:, group * per_in : (group + 1) * per_in]
        w = whole[group * per_out : (group + 1) * per_out]
        parts.append(np.tensordot(some, w, ((1, *last), tuple(range(1, 2 + axes)))))
    sums = np.moveaxis(np.concatenate(parts, axis=-1), -1, 1)
    along = (-1, *(1,) * axes)
    step = np.float64(np.float32(layer.given.step))
    real = sums * (scales.astype(np.float64) * step).reshape(along) + bias.reshape(along)
    return np.maximum(real, 0) if layer.relu else real


def _residual(rng: np.random.Generator) -> tvm.IRModule:
    """Two blocks with a pool between: all of it stays in bytes."""
    layer = Layer((1, 16, 12, 12), (16, 16, 3, 3), _FEW, _FEW, padding=(1,) * 4)

    def convolution(emit: Emit, x: relax.Expr) -> relax.Expr:
        whole, scales = _weights(rng, layer)
        floats = whole.astype("float32") * scales.reshape(-1, 1, 1, 1) / 8
        y = emit(_convolve(x, relax.const(floats), layer))
        bias = rng.normal(0, 0.5, (1, 16, 1, 1)).astype("float32")
        return emit(op.add(y, relax.const(bias)))

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        x = _FEW.rounded(emit, x)
        for _ in range(2):
            y = _POSITIVE.rounded(emit, emit(op.nn.relu(convolution(emit, x))))
            y = _SIGNED.rounded(emit, convolution(emit, y))
            x = _MANY.rounded(emit, emit(op.nn.relu(emit(op.add(y, x)))))
            x = emit(op.nn.max_pool2d(x, (2, 2), (2, 2)))
            x = _MANY.rounded(emit, x)
        return emit(op.mean(x, [2, 3]))

    return normalize(graph([layer.x], body))


@pytest.fixture(scope="module")
def made() -> dict[str, tuple[tvm.IRModule, Array, Array, Array]]:
    rng = np.random.default_rng(SEED)
    return {name: _layer(rng, layer) for name, layer in (LAYERS | IN_PAIRS).items()}


@pytest.fixture(scope="module")
def residual() -> tvm.IRModule:
    return _residual(np.random.default_rng([SEED, 1]))


@pytest.fixture(scope="module")
def compiled(
    made: dict[str, tuple[tvm.IRModule, Array, Array, Array]],
    residual: tvm.IRModule,
    tmp_path_factory: pytest.TempPathFactory,
) -> Regions:
    graphs = {name: mod for name, (mod, *_) in made.items()} | {"residual": residual}
    # The library tells what it multiplies; tiles would take the volume.
    return Regions(graphs, tmp_path_factory.mktemp("in_bytes"), {"winograd": False})


def _graph_of(compiled: Regions, name: str) -> Graph:
    main = next(r for r in regions(compiled.module) if name in str(r.attrs["global_symbol"]))
    built = import_function(main)
    optimize(built)
    use_bytes(built)
    return built


def _require_rounded(found: Array, real: Array, steps: Steps, name: str) -> None:
    """Every result is the nearest step, or lies by a tie, as float32 sees it."""
    whole = np.rint(found / np.float32(steps.step))
    assert np.abs(found - whole * np.float32(steps.step)).max() <= 1e-6, (name, SEED)
    limits = np.iinfo(steps.kind)
    exact = np.clip(real / np.float32(steps.step) + steps.zero, limits.min, limits.max)
    assert np.abs(whole + steps.zero - exact).max() <= 0.5 + 1e-3, (name, SEED)


def _input(rng: np.random.Generator, layer: Layer) -> Array:
    spread = layer.given.step * rng.choice([30, 60, 500])
    return rng.normal(0, spread, layer.x).astype("float32")


@pytest.mark.parametrize("name", [*LAYERS, *IN_PAIRS])
def test_layers(compiled: Regions, made: dict, name: str) -> None:  # type: ignore[type-arg]
    rng, layer = np.random.default_rng([SEED, 2]), (LAYERS | IN_PAIRS)[name]
    for _ in range(3):
        x = _input(rng, layer)
        real = _meant(layer, x, *made[name][1:])
        _require_rounded(compiled.run(name, [x])[0], real, layer.made, name)
    assert len(np.unique(real)) > 20


def test_layers_are_in_bytes(compiled: Regions) -> None:
    for name in LAYERS:
        kinds = [node.kind for node in _graph_of(compiled, name).nodes]
        assert kinds == [OpKind.BINARY, OpKind.BYTES_CONV], name


def test_blocks_stay_in_bytes(compiled: Regions, residual: tvm.IRModule) -> None:
    rng = np.random.default_rng([SEED, 3])
    kinds = [node.kind for node in _graph_of(compiled, "residual").nodes]
    assert kinds.count(OpKind.BYTES_CONV) == 4
    assert kinds.count(OpKind.POOL) == 3  # the last of them the mean
    assert kinds.count(OpKind.BINARY) == 1
    assert kinds.count(OpKind.DEQUANTIZE) == 0
    x = rng.normal(0, 2, (1, 16, 12, 12)).astype("float32")
    found, wanted = compiled.run("residual", [x])[0], evaluate(residual, [x])[0]
    # The mean of nine: a tie that falls the other way moves it by a ninth of a step.
    assert np.abs(found - wanted).max() <= 3 * _MANY.step / 9 + 1e-5, SEED


@pytest.mark.parametrize("layers, of_bytes", [(LAYERS, False), (IN_PAIRS, True)])
def test_where_pairs_are_added_in_16_bits(
    compiled: Regions,
    made: dict,  # type: ignore[type-arg]
    layers: dict[str, Layer],
    of_bytes: bool,
    tmp_path: Path,
) -> None:
    """Processors without VNNI: bytes are multiplied where no sum saturates, else floats."""
    rng = np.random.default_rng([SEED, 4])
    given = {name: _input(rng, layer) for name, layer in layers.items()}
    found, told = run_elsewhere(
        compiled.path, given, tmp_path, ONEDNN_MAX_CPU_ISA="AVX2", ONEDNN_VERBOSE="1"
    )
    for name, layer in layers.items():
        real = _meant(layer, given[name], *made[name][1:])
        _require_rounded(found[name], real, layer.made, name)
    run = [line for line in told.splitlines() if ",exec,cpu,convolution," in line]
    kinds = {"src_u8" in line for line in run}
    assert len(run) >= len(layers)
    assert kinds == ({True, False} if of_bytes else {False}), told


@pytest.mark.parametrize("most", [1, 3, 90, 126, 127])
def test_weights_are_read_back(most: int) -> None:
    rng = np.random.default_rng()
    whole = rng.integers(-most, most + 1, (6, 4, 3, 3))
    whole[:, 0, 0, 0], whole[3] = most, 0
    scales = rng.uniform(1e-4, 3, 6).astype("float32")
    weights = whole.astype("float32") * scales.reshape(-1, 1, 1, 1)
    found = whole_weights(weights, 1)
    assert found is not None
    again = found[0] * found[1].reshape(-1, 1, 1, 1).astype("float64")
    assert np.abs(again - weights).max() <= 2e-6 * np.abs(weights).max()


def test_weights_that_are_no_whole_numbers() -> None:
    rng = np.random.default_rng()
    assert whole_weights(rng.normal(size=(4, 5, 3, 3)).astype("float32"), 1) is None
    unsigned = (rng.integers(-20, 236, (4, 50)) * 0.01).astype("float32")
    unsigned[:, 0], unsigned[:, 1] = 2.35, 0.01
    assert whole_weights(unsigned, 1) is None
