"""Which tiles are worth trying for a product, best guess first.

The guess is a small model of a multiprocessor: how long one tile takes on its tensor cores and on
its share of the second-level cache, times the waves in which the tiles run. It only has to put a
good tile among the first few; where there is a GPU those are measured.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from collage.backends.cutlass.families._base import MULTIPROCESSORS, Configuration, KernelSpec
from collage.backends.cutlass.families.gemm.problem import GemmProblem
from collage.backends.cutlass.options import CutlassOptions

_CYCLES_AROUND_TILE = 2000.0
"""Filling and draining a tile's pipeline, and its epilogue."""
CYCLES_OF_SECOND_KERNEL = 4000.0
"""Launching and running the kernel that sums the slices of K."""
CACHE_BYTES_PER_CYCLE = 48.0
"""What one multiprocessor draws from the second-level cache while all others do."""
_MIN_SLICE = 128
"""Least extent of a slice of K."""
_MAX_SLICES = 32
MAX_CANDIDATES = 6


@dataclass(frozen=True)
class Tile:
    """A kernel's tile.

    Attributes
    ----------
    shape : tuple of int
        Rows, columns and depth of a thread block's tile.
    warp : tuple of int
        Rows and columns of one warp's tile; unused by sm90 kernels.
    stages : int
        Depth of the pipeline; sm90 kernels take what shared memory holds.
    """

    shape: tuple[int, int, int]
    warp: tuple[int, int] = (0, 0)
    stages: int = 0


SM90_TILES = (
    Tile((128, 256, 64)),
    Tile((256, 128, 64)),
    Tile((128, 192, 64)),
    Tile((192, 128, 64)),
    Tile((128, 128, 64)),
    Tile((128, 64, 64)),
    Tile((64, 128, 64)),
    Tile((64, 64, 128)),
    Tile((64, 64, 64)),
)
_SM80_TILES = (
    Tile((128, 256, 32), (64, 64), 3),
    Tile((128, 128, 64), (64, 64), 3),
    Tile((128, 64, 64), (64, 32), 4),
    Tile((64, 128, 64), (32, 64), 4),
    Tile((64, 64, 64), (32, 32), 5),
)
_TF32_TILES = (
    Tile((128, 128, 32), (64, 64), 3),
    Tile((128, 64, 32), (64, 32), 4),
    Tile((64, 128, 32), (32, 64), 4),
    Tile((64, 64, 32), (32, 32), 4),
)
_TF32X3_TILES = (
    Tile((128, 128, 16), (64, 32), 3),
    Tile((128, 64, 16), (64, 32), 4),
    Tile((64, 128, 16), (32, 64), 4),
    Tile((64, 64, 16), (32, 32), 5),
)
_SIMT_TILES = (
    Tile((128, 128, 8), (32, 64), 4),
    Tile((128, 64, 8), (64, 32), 5),
    Tile((64, 128, 8), (32, 64), 5),
    Tile((64, 64, 8), (32, 32), 5),
)
TILES = {"tensor": _SM80_TILES, "tf32": _TF32_TILES, "3xtf32": _TF32X3_TILES, "simt": _SIMT_TILES}
"""Tiles of the 2.x kernels by the spec's math."""

MULTIPLY_ADDS_PER_CYCLE = {
    "sm90": 4096.0,
    "tensor": 2400.0,
    "tf32": 1200.0,
    "3xtf32": 400.0,
    "simt": 128.0,
}
"""Of one multiprocessor of an H100; the 2.x kernels reach about 60 % of its tensor cores."""


@dataclass(frozen=True)
class GemmConfiguration(Configuration):
    """One way to run a product.

    ``kind`` is ``sm90`` (Hopper's bulk copies and products), ``sm80`` (CUTLASS's 2.x kernel) or
    ``split_k`` (2.x kernel on slices of K, then their sum).

    Attributes
    ----------
    tile : Tile
    alignments : tuple of int
        Elements per access to a, b and the result.
    slices : int
        Slices of K; they are no part of the compiled kernel.
    """

    tile: Tile
    alignments: tuple[int, int, int]
    slices: int = 1

    @property
    def is_quick(self) -> bool:
        return self.kind == "sm90"


def configurations(
    problem: GemmProblem, spec: KernelSpec, options: CutlassOptions, arch: str
) -> list[GemmConfiguration]:
    """At most :data:`MAX_CANDIDATES` configurations, the best guess first.

    ``profile_all_alignments`` adds narrower variants of the best 2.x kernels.

    Parameters
    ----------
    problem : GemmProblem
        The extents and strides of a product.
    spec : KernelSpec
        What it is and what follows it.
    options : CutlassOptions
        They may ask for narrower accesses, or for slices of the reduced axis.
    arch : str
        What to compile for.

    Returns
    -------
    list[GemmConfiguration]
        A few of every kind of kernel that runs the problem; narrower variants last.
    """
    able = list(_all(problem, spec.math, options, arch))
    best = _of_every_kind(sorted(able, key=lambda c: _estimated_cycles(problem, spec.math, c)))
    if options.profile_all_alignments:
        old = [c for c in best if c.kind != "sm90"][:2]
        best += [narrow for c in old for narrow in _narrower(c, problem, spec.math)]
    return best


def _of_every_kind(ranked: Sequence[GemmConfiguration]) -> list[GemmConfiguration]:
    """The best few; some of every kind, since the model compares kinds less well than tiles.

    What a tile does, its mirror image does nearly as well: that comes last, for whoever tries but
    the first.
    """
    most = {"sm90": 3, "sm80": 1, "split_k": 1}
    if all(c.kind != "sm90" for c in ranked):
        most |= {"sm80": 4, "split_k": 2}
    best: list[GemmConfiguration] = []
    for configuration in ranked:
        kind = configuration.kind
        if most[kind] > 0 and len(best) < MAX_CANDIDATES:
            best.append(configuration)
            most[kind] -= 1
    first = best[0] if best else None
    return sorted(best, key=lambda c: first is not None and _mirrors(c, first))


def _mirrors(configuration: GemmConfiguration, other: GemmConfiguration) -> bool:
    rows, columns, depth = configuration.tile.shape
    return rows != columns and (configuration.kind, other.tile.shape) == (
        other.kind,
        (columns, rows, depth),
    )


def _all(
    problem: GemmProblem, math: str, options: CutlassOptions, arch: str
) -> Iterator[GemmConfiguration]:
    slices = _slice_counts(problem, math, options)
    widest = (1, 1, 1) if math == "simt" else problem.alignments()
    whole = GemmConfiguration("sm80", Tile((0, 0, 0)), widest)
    if 1 in slices:
        if takes_tma(problem) and options.generation(arch) == 90:
            yield from (replace(whole, kind="sm90", tile=tile) for tile in SM90_TILES)
        yield from (replace(whole, tile=_staged(tile, whole, problem)) for tile in TILES[math])
    for tile, count in itertools.product(TILES[math], slices):
        if count > 1:
            staged = _staged(tile, whole, problem)
            yield replace(whole, kind="split_k", tile=staged, slices=count)


def takes_tma(problem: GemmProblem) -> bool:
    """Whether Hopper's bulk loads take the operands: 16-byte rows, no matrix shared by a batch.

    A single result may have other rows: the threads store it. Batches of such are left to the 2.x
    kernels, as attention's scores, whose sums are short.
    """
    width = 128 // problem.bits
    a, b, result = problem.alignments()
    if problem.bits != 16 or (a, b) != (width, width):
        return False
    shared = 0 in (problem.batch_stride_a, problem.batch_stride_b)
    return problem.batch == 1 or (result == width and not shared)


def _staged(tile: Tile, configuration: GemmConfiguration, problem: GemmProblem) -> Tile:
    """The tile, in two stages where an access is narrower than asynchronous copies can be."""
    narrowest = min(configuration.alignments[:2]) * problem.bits
    return replace(tile, stages=2) if narrowest < 32 else tile


def _narrower(
    configuration: GemmConfiguration, problem: GemmProblem, math: str
) -> Iterator[GemmConfiguration]:
    if math == "simt":
        return
    widest = max(configuration.alignments)
    while widest > 1:
        widest //= 2
        a, b, d = (min(given, widest) for given in configuration.alignments)
        narrow = replace(configuration, alignments=(a, b, d))
        if narrow != configuration:
            yield replace(narrow, tile=_staged(narrow.tile, narrow, problem))


def _slice_counts(problem: GemmProblem, math: str, options: CutlassOptions) -> tuple[int, ...]:
    """Into how many slices of K the product may be cut; 1 is the whole."""
    given = options.split_k_candidates()
    if problem.batch > 1:
        return (1,)
    if given is not None:
        fitting = tuple(count for count in given if problem.k >= count * _MIN_SLICE or count == 1)
        return fitting or (1,)
    smallest = min(_num_tiles(problem, tile) for tile in TILES[math])
    if smallest >= MULTIPROCESSORS // 2:
        return (1,)
    counts = (2, 4, 8, 16, _MAX_SLICES)
    fitting = tuple(
        count
        for count in counts
        if problem.k >= count * _MIN_SLICE and smallest * count <= 2 * MULTIPROCESSORS
    )
    return (1, *fitting)


def _num_tiles(problem: GemmProblem, tile: Tile) -> int:
    rows, columns, _ = tile.shape
    return -(-problem.m // rows) * -(-problem.n // columns) * problem.batch


def _estimated_cycles(problem: GemmProblem, math: str, configuration: GemmConfiguration) -> float:
    """Roughly how long a configuration takes, to put configurations in order."""
    tile, slices = configuration.tile, configuration.slices
    rows, columns, depth = tile.shape
    k = -(-problem.k // (slices * depth)) * depth
    rate = MULTIPLY_ADDS_PER_CYCLE["sm90" if configuration.kind == "sm90" else math]
    compute = rows * columns * k / rate
    # What lies outside is not loaded.
    loaded = min(rows, problem.m) + min(columns, problem.n)
    narrow = 128 / (min(configuration.alignments[:2]) * problem.bits)
    weight = 1.0 if math == "simt" else narrow**0.5
    traffic = weight * loaded * k * problem.bits / 8 / CACHE_BYTES_PER_CYCLE
    # The next tile's operands arrive while a tile is finished.
    around = _CYCLES_AROUND_TILE * (0.8 if configuration.kind == "sm90" else 1.0)
    blocks = _num_tiles(problem, tile) * slices
    waves = max(1.0, blocks / MULTIPROCESSORS)
    if blocks > MULTIPROCESSORS:
        whole = -(-blocks // MULTIPROCESSORS)
        # Small tiles share a multiprocessor, which evens out the last wave.
        small = rows * columns <= 64 * 128
        waves = (waves + whole) / 2 if small else whole
    # Loads and products overlap, but not all of the way.
    busy = max(compute, traffic) + 0.25 * min(compute, traffic)
    cycles = waves * (busy + around)
    if configuration.kind == "split_k":
        sums = problem.m * problem.n * 4.0 * (slices + 1)
        cycles += CYCLES_OF_SECOND_KERNEL + sums / (CACHE_BYTES_PER_CYCLE * MULTIPROCESSORS)
    return cycles
