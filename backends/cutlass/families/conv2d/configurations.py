"""Kernel configurations of convolutions, ordered by an estimate of their time."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from collage.backends.cutlass.families._base import MULTIPROCESSORS, Configuration, alignment
from collage.backends.cutlass.families.conv2d.problem import Conv2dProblem
from collage.backends.cutlass.options import CutlassOptions

CYCLES_OF_SECOND_KERNEL = 4000.0
"""Launching and running the kernel that sums slices."""
CACHE_BYTES_PER_CYCLE = 48.0
"""What one multiprocessor draws from the second-level cache while all others do."""
MULTIPLY_ADDS_PER_CYCLE = 2400.0
"""Of one multiprocessor, by kernels of the older generation, in half precision."""

_MAX_FILTER_EXTENT = 32
"""The optimized iterators keep one bit per filter row and column."""


@dataclass(frozen=True)
class Conv2dConfiguration(Configuration):
    """An implicit-GEMM kernel: ``sm80``, ``sm90``, or ``split_k`` (an ``sm80`` kernel on slices of
    the input channels, then their sum).

    Attributes
    ----------
    tile_m, tile_n, tile_k : int
        Pixels, output channels and reduced elements of a thread block's tile.
    warps_m, warps_n : int
        Into how many warps the tile is cut; unused by ``sm90``.
    stages : int
        Tiles in flight; 0 fills the shared memory (``sm90`` only).
    iterator : str
        How the data is walked through: ``optimized``, ``analytic``, ``few`` or ``fixed`` channels,
        or ``im2col``, done by Hopper's copy engine.
    access_c, access_k : int
        Elements per memory access along input and output channels.
    split_k : int
        Slices of the input channels; no part of the compiled kernel.
    """

    tile_m: int
    tile_n: int
    tile_k: int
    warps_m: int = 1
    warps_n: int = 1
    stages: int = 0
    iterator: str = "im2col"
    access_c: int = 8
    access_k: int = 8
    split_k: int = 1

    @property
    def is_quick(self) -> bool:
        return self.kind == "sm90"


@dataclass(frozen=True)
class _Tile:
    """A tile shape and how much of the peak it reaches when every multiprocessor has one."""

    m: int
    n: int
    k: int
    warps_m: int
    warps_n: int
    stages: int
    efficiency: float


_HALF = (
    _Tile(256, 128, 32, 4, 2, 3, 1.0),
    _Tile(128, 128, 32, 2, 2, 4, 0.95),
    _Tile(128, 128, 64, 2, 2, 3, 0.97),
    _Tile(256, 64, 32, 4, 1, 4, 0.85),
    _Tile(128, 64, 32, 2, 2, 4, 0.75),
    _Tile(128, 64, 64, 2, 2, 3, 0.78),
    _Tile(64, 128, 64, 2, 2, 3, 0.75),
    _Tile(64, 64, 32, 2, 2, 5, 0.5),
    _Tile(64, 64, 64, 2, 2, 4, 0.55),
)
_FLOAT = (
    _Tile(128, 128, 16, 4, 2, 4, 1.0),
    _Tile(128, 64, 16, 2, 2, 4, 0.85),
    _Tile(64, 64, 16, 2, 2, 5, 0.6),
    _Tile(64, 64, 32, 2, 2, 3, 0.65),
)
# Hopper's instructions have about 1.6 times the rate.
_HOPPER = (
    _Tile(128, 192, 64, 4, 1, 0, 1.6),
    _Tile(192, 128, 64, 4, 1, 0, 1.6),
    _Tile(128, 128, 64, 4, 1, 0, 1.5),
    _Tile(128, 64, 64, 4, 1, 0, 1.2),
    _Tile(64, 128, 64, 4, 1, 0, 1.2),
    _Tile(64, 64, 64, 4, 1, 0, 0.8),
)
# Small-channel kernels reduce over rows and columns of the filter too; their tiles stay narrow.
_FEW_HALF = (_Tile(128, 64, 32, 2, 2, 3, 0.75), _Tile(64, 64, 32, 2, 2, 3, 0.5))
_FEW_FLOAT = (_Tile(128, 64, 16, 2, 2, 3, 0.85), _Tile(64, 64, 16, 2, 2, 3, 0.6))

_COUNT = 5
"""How many configurations are offered, besides those that stand for a kind of kernel."""

_ALIKE = 2
"""How many of them may have the same tile."""


def candidates(
    problem: Conv2dProblem, options: CutlassOptions, arch: str
) -> list[Conv2dConfiguration]:
    """The most promising configurations, the best guess first; never empty.

    Parameters
    ----------
    problem : Conv2dProblem
        What is to be run.
    options : CutlassOptions
        Which kernels may be used.
    arch : str
        What to compile for, for example ``sm_90a``.

    Returns
    -------
    list[Conv2dConfiguration]
        Of each generation of kernels that runs the problem, and of each asked number of slices, at
        least one.
    """
    found = list(_sm80(problem, options))
    if options.generation(arch) >= 90 and _hopper_fits(problem):
        found += _sm90(problem)
    found.sort(key=lambda pair: pair[0])
    ordered = [configuration for _, configuration in found]
    best: list[Conv2dConfiguration] = []
    for made in ordered:
        alike = [
            b for b in best if (b.kind, b.tile_m, b.tile_n) == (made.kind, made.tile_m, made.tile_n)
        ]
        if len(best) < _COUNT and len(alike) < _ALIKE:
            best.append(made)
    # Both generations are measured, whatever the estimate says.
    kinds: list[Callable[[Conv2dConfiguration], bool]] = [
        lambda made: made.kind == "sm80",
        lambda made: made.kind == "sm90",
    ]
    # So is each slice count that was asked for; or none, where the shape decides.
    for count in options.split_k_candidates() or (1,):
        kinds.append(functools.partial(_has_slices, count))
    for belongs in kinds:
        rest = [made for made in ordered if belongs(made)]
        if rest and not any(map(belongs, best)):
            best.append(rest[0])
    return best


def _has_slices(count: int, made: Conv2dConfiguration) -> bool:
    return made.split_k == count


def _hopper_fits(problem: Conv2dProblem) -> bool:
    """Whether the copy engine's im2col mode can express the problem."""
    ends = zip(
        problem.pads[:2],
        problem.pads[2:],
        (problem.r, problem.s),
        problem.strides,
        problem.dilation,
        strict=True,
    )
    for before, after, extent, stride, dilation in ends:
        reach = (extent - 1) * dilation
        # Corners of the box are signed bytes, offsets unsigned ones, strides up to eight.
        if max(before, after) > 127 or reach - before > 127 or reach - after > 127:
            return False
        if reach >= 255 or stride > 8:
            return False
    return problem.bits == 16 and problem.c % 8 == 0 and problem.k % 8 == 0


def _sm80(
    problem: Conv2dProblem, options: CutlassOptions
) -> Iterator[tuple[float, Conv2dConfiguration]]:
    half = problem.bits == 16
    widest_c = alignment(problem.c, problem.bits)
    access_k = alignment(problem.k, problem.bits)
    small = _small_iterator(problem, widest_c)
    if small:
        for tile in _FEW_HALF if half else _FEW_FLOAT:
            # Asynchronous copies move at least four bytes.
            stages = tile.stages if widest_c * problem.bits >= 32 else 2
            steps = math.ceil(problem.r * problem.s * problem.c / tile.k)
            made = _configuration(tile, small, widest_c, access_k, 1, stages)
            yield _seconds(problem, tile, steps, 1), made
    if small and (widest_c * problem.bits < 32 or problem.c < 8):
        return
    within = max(problem.r, problem.s) <= _MAX_FILTER_EXTENT
    iterator = "optimized" if within else "analytic"
    accesses = [widest_c]
    if options.profile_all_alignments and widest_c * problem.bits >= 64:
        accesses.append(widest_c // 2)
    for tile in _HALF if half else _FLOAT:
        # Each step along the reduced axis lies within one filter position.
        steps = problem.r * problem.s * math.ceil(problem.c / tile.k)
        for access_c in accesses:
            for split_k in _splits(problem, tile, steps, options):
                made = _configuration(tile, iterator, access_c, access_k, split_k, tile.stages)
                narrow = 1 + 0.3 * math.log2(128 / (access_c * problem.bits))
                yield _seconds(problem, tile, steps, split_k) * narrow, made


def _small_iterator(problem: Conv2dProblem, access_c: int) -> str:
    """The iterator for few input channels, or nothing where the general one is as good."""
    if problem.c in (4, 8) and problem.c == access_c:
        return "fixed"
    return "few" if access_c * problem.bits < 32 or problem.c < 16 else ""


def _splits(problem: Conv2dProblem, tile: _Tile, steps: int, options: CutlassOptions) -> list[int]:
    """Slice counts worth trying."""
    given = options.split_k_candidates()
    most = math.ceil(problem.c / tile.k)
    if given is not None:
        fitting = [count for count in given if count <= most]
        return fitting or [1]
    blocks = math.ceil(problem.n * problem.p * problem.q / tile.m) * math.ceil(problem.k / tile.n)
    wanted = [c for c in (2, 4, 8) if c <= most and c * blocks <= 2 * MULTIPROCESSORS]
    return [1, *wanted] if steps >= 16 else [1]


def _configuration(
    tile: _Tile, iterator: str, access_c: int, access_k: int, split_k: int, stages: int
) -> Conv2dConfiguration:
    return Conv2dConfiguration(
        kind="sm80" if split_k == 1 else "split_k",
        tile_m=tile.m,
        tile_n=tile.n,
        tile_k=tile.k,
        warps_m=tile.warps_m,
        warps_n=tile.warps_n,
        stages=stages,
        iterator=iterator,
        access_c=access_c,
        access_k=access_k,
        split_k=split_k,
    )


def _sm90(problem: Conv2dProblem) -> Iterator[tuple[float, Conv2dConfiguration]]:
    for tile in _HOPPER:
        steps = problem.r * problem.s * math.ceil(problem.c / tile.k)
        made = Conv2dConfiguration(kind="sm90", tile_m=tile.m, tile_n=tile.n, tile_k=tile.k)
        # Descriptors and the start of the pipeline cost a small problem more than they save.
        yield _seconds(problem, tile, steps + 1, 1), made


def _seconds(problem: Conv2dProblem, tile: _Tile, steps: int, split_k: int) -> float:
    """A relative time, in products of one multiprocessor: waves of blocks times one's work."""
    pixels = problem.n * problem.p * problem.q
    blocks = math.ceil(pixels / tile.m) * math.ceil(problem.k / tile.n) * split_k
    # Once every multiprocessor has two blocks, a last incomplete wave hardly shows.
    waves = float(math.ceil(blocks / MULTIPROCESSORS))
    if blocks > 2 * MULTIPROCESSORS:
        waves = blocks / MULTIPROCESSORS
    # A step costs a barrier besides its products; filling and draining the pipeline, some steps.
    work = tile.m * tile.n * ((tile.k + 8) * math.ceil(steps / split_k) + 96)
    cost = waves * work / tile.efficiency
    if split_k > 1:
        traffic = problem.n * problem.p * problem.q * problem.k * 4 * (split_k + 1)
        cycles = CYCLES_OF_SECOND_KERNEL + traffic / (CACHE_BYTES_PER_CYCLE * MULTIPROCESSORS)
        cost += cycles * MULTIPLY_ADDS_PER_CYCLE
    return cost
