"""Convolutions in Winograd's tiles: right, as exact as sums of products, and really done."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.contract import BuildContext
from collage.backends.devices.cpu_flags import cpu_flags_here
from collage.backends.toolchain.elf.shared_library import shared_library
from collage.backends.toolchain.openmp_pool import pool_library, uses_more
from collage.cost.reference import DEFAULT_RTOL, evaluate, largest_error
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.onednn.regions import Regions, random_inputs, run_elsewhere
from tests.object_cache import cache_with_objects

pytestmark = pytest.mark.skipif(
    not {"avx2", "fma"} <= cpu_flags_here(), reason="needs vectors of eight numbers"
)

SEED = int(np.random.SeedSequence().entropy) % 2**32
"""New at every run; a failure shows it."""

Following = Callable[[Emit, relax.Expr, relax.Expr], relax.Expr]

_EXACT_RMS = 1e-6
"""Of the results, beside the same in float64: what adding up the products of some hundred channels
one by one is off by."""


def convolution(
    picture: tuple[int, ...],
    filters: int,
    following: Following | None = None,
    *,
    taps: tuple[int, ...] = (),
    padding: tuple[int, ...] = (),
    **attributes: int | tuple[int, ...],
) -> tvm.IRModule:
    """Of a picture, or of a volume; three taps along each axis where nothing else is said."""
    rng, axes = np.random.default_rng(SEED), len(picture) - 2
    depth, taps = picture[1] // int(attributes.get("groups", 1)), taps or (3,) * axes
    scale = (depth * np.prod(taps)) ** -0.5
    weights = constant(filters, depth, *taps, scale=scale, rng=rng)
    convolved = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}[axes]

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = convolved(x, weights, padding=padding or (1,) * axes, **attributes)
        return y if following is None else following(emit, emit(y), x)

    return graph([picture], body)


def biased(emit: Emit, y: relax.Expr) -> relax.Expr:
    shape = (1, int(y.ty.shape[1]), *(1 for _ in list(y.ty.shape)[2:]))
    return emit(op.add(y, constant(*shape, rng=np.random.default_rng(SEED + 1))))


def residual(emit: Emit, y: relax.Expr, x: relax.Expr) -> relax.Expr:
    return op.nn.relu(emit(op.add(biased(emit, y), x)))


def twice(emit: Emit, y: relax.Expr, x: relax.Expr) -> relax.Expr:
    """What is added is computed, and read once more behind."""
    weights = constant(64, 64, 3, 3, scale=0.04, rng=np.random.default_rng(SEED + 2))
    first = emit(op.nn.relu(biased(emit, y)))
    second = emit(op.add(emit(op.nn.conv2d(first, weights, padding=1)), first))
    return op.multiply(second, first)


def in_place(emit: Emit, y: relax.Expr, x: relax.Expr) -> relax.Expr:
    """What is added is computed, and read by nothing behind: the results are written over it."""
    rng = np.random.default_rng(SEED + 2)
    one, three = (constant(64, 64, n, n, scale=0.1 / n, rng=rng) for n in (1, 3))
    shortcut = emit(op.nn.conv2d(x, one))
    second = emit(op.nn.conv2d(emit(op.nn.relu(y)), three, padding=1))
    return op.nn.relu(emit(op.add(biased(emit, second), shortcut)))


def gated(emit: Emit, y: relax.Expr, x: relax.Expr) -> relax.Expr:
    """What is added is read once more behind, and by nothing else: it must not be written over."""
    rng = np.random.default_rng(SEED + 2)
    one, three = (constant(64, 64, n, n, scale=0.1 / n, rng=rng) for n in (1, 3))
    gate = emit(op.nn.relu(emit(op.nn.conv2d(x, one))))
    second = emit(op.nn.conv2d(emit(op.nn.relu(y)), three, padding=1))
    return op.multiply(emit(op.add(biased(emit, second), gate)), gate)


GRAPHS = {
    "odd": convolution((1, 64, 23, 31), 64),
    "batch": convolution((3, 32, 9, 14), 48),
    "small": convolution((2, 128, 7, 7), 128),
    "wide": convolution((1, 304, 8, 9), 336),
    "padding": convolution((1, 48, 17, 19), 64, padding=(0, 2, 1, 0)),
    "no_padding": convolution((1, 48, 17, 19), 64, padding=(0, 0, 0, 0)),
    "dilated": convolution((1, 64, 21, 18), 64, dilation=2, padding=(2, 2, 2, 2)),
    "grouped": convolution((1, 128, 18, 18), 192, groups=4),
    "residual": convolution((2, 64, 13, 13), 64, residual),
    "leaky": convolution((1, 64, 16, 16), 32, lambda e, y, x: op.nn.leakyrelu(biased(e, y), 0.2)),
    "clipped": convolution((1, 64, 16, 16), 64, lambda e, y, x: op.clip(biased(e, y), 0, 6)),
    "tanh": convolution((1, 64, 16, 16), 64, lambda e, y, x: op.tanh(e(op.add(y, x)))),
    "twice": convolution((1, 64, 12, 12), 64, twice),
    "gated": convolution((1, 64, 12, 12), 64, gated),
    "in_place": convolution((1, 64, 12, 12), 64, in_place),
}
"""All have convolutions of three by three taps that cost less in tiles."""

VOLUMES = {
    "volume": convolution((1, 64, 6, 13, 15), 64),
    "volume_batch": convolution((3, 32, 2, 9, 14), 48),
    "volume_residual": convolution((1, 64, 5, 12, 12), 64, residual),
    "volume_grouped": convolution((2, 64, 3, 12, 12), 96, groups=2),
    "frames": convolution((1, 64, 5, 14, 14), 80, taps=(1, 3, 3), padding=(0, 1, 1)),
    "deep": convolution((1, 32, 70, 8, 9), 32),
    "steps": convolution((1, 64, 9, 12, 12), 64, strides=(2, 1, 1)),
    "steps_apart": convolution(
        (1, 64, 9, 12, 12), 64, taps=(4, 3, 3), padding=(3, 1, 0, 2, 1, 2),
        strides=(3, 1, 1), dilation=(2, 1, 2),
    ),
    "padding_only": convolution((1, 64, 2, 12, 12), 64, padding=(5, 1, 1), dilation=(2, 1, 1)),
}  # fmt: skip
"""The same along rows and columns of volumes."""
GRAPHS |= VOLUMES

AXES = {
    "row": convolution((1, 128, 9, 23), 96, taps=(1, 3), padding=(0, 1)),
    "column": convolution((2, 128, 17, 5), 128, taps=(3, 1), padding=(1, 0)),
    "line": convolution((2, 128, 131), 160, taps=(3,), padding=(1,)),
    "line_dilated": convolution((1, 128, 131), 128, taps=(3,), padding=(4,), dilation=4),
    "line_residual": convolution((1, 128, 66), 128, residual),
    "line_of_five": convolution((1, 256, 61), 192, taps=(5,), padding=(2,)),
    "row_of_five": convolution((1, 192, 3, 19), 256, taps=(1, 5), padding=(0, 2)),
    "column_of_five": convolution((1, 256, 19, 3), 192, taps=(5, 1), padding=(2, 0)),
    "between_planes": convolution((2, 144, 7, 6, 5), 128, taps=(3, 1, 1), padding=(1, 0, 0)),
    "planes_of_rows": convolution((1, 128, 4, 3, 18), 128, taps=(3, 1, 3), padding=(1, 0, 1)),
    "five": convolution((1, 64, 17, 15), 80, taps=(5, 5), padding=(2, 2)),
    "five_grouped": convolution((2, 64, 13, 12), 128, taps=(5, 5), padding=(2, 2), groups=2),
    "five_dilated": convolution((1, 48, 23, 19), 64, taps=(5, 5), padding=(3, 1), dilation=2),
    "five_volumes": convolution((1, 48, 4, 12, 12), 48, taps=(2, 5, 5), padding=(0, 2, 2)),
}
"""Taps along one axis, and five of them."""
GRAPHS |= AXES

OTHERS = {
    "few_channels": convolution((1, 3, 32, 32), 64),
    "odd_channels": convolution((1, 36, 16, 16), 36),
    "depthwise": convolution((1, 64, 16, 16), 64, groups=64),
    "few_channels_of_volumes": convolution((1, 3, 4, 16, 16), 64),
    "few_channels_of_lines": convolution((1, 16, 64), 16),
    "seven": convolution((1, 64, 16, 16), 64, taps=(7, 7), padding=(3, 3)),
    "planes_cropped": convolution((1, 144, 7, 6, 5), 128, taps=(3, 1, 1), padding=(1, 1, 0)),
}
"""None of these is done in tiles."""


@pytest.fixture(scope="module", params=["auto", "nhwc"])
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Regions:
    folder = tmp_path_factory.mktemp(f"winograd_{request.param}")
    return Regions({**GRAPHS, **OTHERS}, folder, {"layout": request.param})


@pytest.mark.parametrize("name", [*GRAPHS, *OTHERS])
def test_they_agree_with_the_reference(compiled: Regions, name: str) -> None:
    compiled.require_reference(name)


@pytest.mark.parametrize(
    "name", ["odd", "small", "wide", "grouped", "volume", "volume_batch", "line", "five"]
)
def test_they_are_as_exact_as_sums_of_products(compiled: Regions, name: str) -> None:
    rng = np.random.default_rng(SEED + 3)
    mod = GRAPHS[name]
    x = np.maximum(random_inputs(mod, rng)[0], 0)
    (call,) = (b.value for b in mod["main"].body.blocks[0].bindings[:1])
    weights, groups = call.args[1].value.numpy().astype(np.float64), int(call.attrs.groups)
    axes = tuple(range(2, x.ndim))
    padding = [(0, 0), (0, 0), *((taps // 2, taps // 2) for taps in weights.shape[2:])]
    padded = np.pad(x.astype(np.float64), padding)
    windows = np.lib.stride_tricks.sliding_window_view(padded, weights.shape[2:], axes)
    parts = zip(np.split(windows, groups, 1), np.split(weights, groups), strict=True)
    axis, tap = "dhw"[-len(axes) :], "ijk"[: len(axes)]
    sums = f"nc{axis}{tap},fc{tap}->nf{axis}"
    expected = np.concatenate([np.einsum(sums, w, f) for w, f in parts], axis=1)
    (actual,) = compiled.run(name, [x])
    error = np.sqrt(np.mean((actual - expected) ** 2) / np.mean(expected**2))
    assert error < _EXACT_RMS, f"{error} of seed {SEED}"


def test_threads_are_those_of_the_pool(compiled: Regions, tmp_path: Path) -> None:
    """A runtime that asks libgomp for more than the pool has would be left to it as a whole."""
    pool = pool_library(BuildContext(cache_with_objects(tmp_path), tmp_path / "work", 2))
    assert pool is not None and not uses_more(compiled.path, pool)
    assert "GOMP_parallel" not in shared_library(compiled.path).undefined


_ISAS = [
    "AVX2",
    pytest.param(
        "AVX512_CORE",
        marks=pytest.mark.skipif("avx512bw" not in cpu_flags_here(), reason="needs AVX-512"),
    ),
]


@pytest.mark.parametrize("isa", _ISAS)
def test_the_library_computes_only_what_is_not_done_in_tiles(
    compiled: Regions, isa: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(SEED + 4)
    # With AVX-512 long sums along one axis (line_of_five) are in blocks, where no layout was asked
    # for: they are more exact.
    blocks = isa.startswith("AVX512") and compiled.target.options.layout == "auto"
    long = 1 if blocks else 0
    for graphs, expected in ((GRAPHS, long), (OTHERS, len(OTHERS))):
        given = {name: random_inputs(mod, rng)[0] for name, mod in graphs.items()}
        folder = tmp_path / str(expected)
        folder.mkdir()
        settings = {"ONEDNN_MAX_CPU_ISA": isa, "ONEDNN_VERBOSE": "1"}
        found, told = run_elsewhere(compiled.path, given, folder, **settings)
        for name, x in given.items():
            (wanted,) = evaluate(graphs[name], [x])
            assert largest_error(found[name], wanted) < DEFAULT_RTOL, name
        executed = re.findall(r"exec,cpu,convolution,.*k[dhw][357]", told)
        assert len(executed) == expected, executed
