"""Half-precision products on tensor cores: matrix products and, as implicit ones, convolutions.

The shape of the schedule is that of DLight's ``MatmulTensorization``: the kernel is brought to
``C[S, I, J] += A[S, I, K] * B[S, J, K]`` (a convolution's pixels are ``I``, its window and input
channels ``K``; the im2col matrix exists in shared memory only), padded to whole tiles, staged
through double-buffered shared memory and multiplied by WMMA with float32 accumulators. Three things
differ: the tile follows the problem's size, so that small ones still fill the chip; ``B`` keeps the
order it has in memory, so that its loads are wide; and ``sm_90a`` counts as an architecture that
has tensor cores, which DLight's check of the name denies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import s_tir, tirx
from tvm.s_tir.dlight.gpu.matmul import IterKind as Kind
from tvm.s_tir.dlight.gpu.matmul import (
    auto_inline_consumer_chain,
    auto_inline_consumers,
    auto_inline_producers,
    detect_iter_traits,
    get_reduction_blocks,
    make_iter_fusion_index_map,
)

from collage.backends.tvm.common.blocks import root_blocks
from collage.backends.tvm.common.families import OTHER_KIND, Refusal
from collage.backends.tvm.cuda.schedules._base import WARP, Gpu
from collage.backends.tvm.cuda.schedules.ahead import is_plain_copy, one_condition, stages_ahead
from collage.backends.tvm.cuda.schedules.split_sums import (
    choose_parts,
    schedule_total,
    split_sum,
)
from collage.backends.tvm.cuda.schedules.tiles import SKEW, Tile, choose_tile
from collage.backends.tvm.cuda.schedules.wmma import DTYPES, MICRO, intrinsics

_LEAST_SM = 80
"""Earlier chips have tensor cores too, but not the shared memory for these tiles."""

_SMALLEST = 8
"""Extents of I and K below which half of every tensor-core operation would be padding."""

_FEWEST_COLUMNS = 2
"""Seven eighths of an operation are padding then, and it is still faster than any other kernel."""


def schedule_whole(func: tirx.PrimFunc, gpu: Gpu) -> tirx.PrimFunc | Refusal:
    """As :func:`schedule`, with every sum in one part, for kernels in which none can be cut.

    Parameters
    ----------
    func, gpu
        A kernel with a matrix product, and what runs it.

    Returns
    -------
    tirx.PrimFunc | Refusal
        As there.
    """
    return schedule(func, gpu, may_cut=False)


def schedule(func: tirx.PrimFunc, gpu: Gpu, *, may_cut: bool = True) -> tirx.PrimFunc | Refusal:
    """Schedule a kernel with one half-precision product and elementwise stages around it.

    Parameters
    ----------
    func, gpu
        A kernel with a matrix product, and what runs it.
    may_cut : bool
        Whether long sums of few tiles may be cut into parts.

    Returns
    -------
    tirx.PrimFunc | Refusal
        Scheduled, or why tensor cores do not run it; :data:`OTHER_KIND` where it holds no product.
    """
    sch = s_tir.Schedule(func)
    reductions = get_reduction_blocks(sch, root_blocks(sch))
    if reductions is None:
        return OTHER_KIND
    main = reductions[0]
    stmt = sch.get(main)
    traits = detect_iter_traits(stmt)
    if traits is None or gpu.sm < _LEAST_SM:
        return OTHER_KIND
    dtypes = {str(region.source.dtype) for region in stmt.reads}
    halves = len(dtypes) == 1 and dtypes <= set(DTYPES)
    if not halves or str(stmt.writes[0].source.dtype) != "float32":
        return Refusal(f"tensor cores are used for {' and '.join(DTYPES)}, and float32 sums")
    sizes = dict.fromkeys(Kind, 1)
    for trait in traits[3]:
        sizes[trait.kind] *= int(trait.extent)
    rows, columns, depth = (sizes[k] for k in (Kind.kIter_I, Kind.kIter_J, Kind.kIter_K))
    if min(rows, depth) < _SMALLEST or columns < _FEWEST_COLUMNS:
        return Refusal(f"{rows} x {columns} x {depth} is too small for tensor cores")
    if sizes[Kind.kIter_S] > 65535:
        return Refusal("there are more batches than blocks along z")
    tile = choose_tile(sizes[Kind.kIter_S], rows, columns, gpu)
    if math.ceil(columns / tile.columns) > 65535:
        return Refusal("there are more columns than blocks along y")
    terms = [int(v.dom.extent) for v in stmt.iter_vars if v.iter_type == tirx.IterVar.CommReduce]
    blocks = tile.blocks(sizes[Kind.kIter_S], rows, columns)
    results = blocks * tile.rows * tile.columns
    parts = choose_parts(terms, blocks, results, MICRO * tile.depth, gpu.num_sms)
    count = math.prod(parts) if may_cut else 1
    if count == 1 or sizes[Kind.kIter_S] * count > 65535:
        _Builder(sch, main, tile, gpu).build()
        return one_condition(sch.mod["main"])
    partial = split_sum(sch, main, parts)
    _Builder(sch, partial, tile, gpu, inline_behind=auto_inline_consumers).build()
    schedule_total(sch, main)
    return one_condition(sch.mod["main"])


def _lanes_in_a_row(source: tirx.Buffer) -> int:
    """Elements of an operand that may be copied at once.

    A convolution's K runs over windows and channels. Where eight elements in a row may belong to
    several pixels, their indices are a vector of quotients, which TVM's CUDA code generator writes
    as calls that do not compile.
    """
    return 8 if len(source.shape) < 4 or int(source.shape[-1]) % 8 == 0 else 1


class _Builder:
    """The steps of one schedule."""

    def __init__(
        self,
        sch: s_tir.Schedule,
        main: Any,
        tile: Tile,
        gpu: Gpu,
        inline_behind: Callable[[s_tir.Schedule, Any], None] = auto_inline_consumer_chain,
    ) -> None:
        self.sch = sch
        self.inline_behind = inline_behind
        self.main = main
        self.tile = tile
        self.gpu = gpu
        self.dtype = str(sch.get(main).reads[0].source.dtype)
        self.transposed_b = self._columns_outside()
        self.lanes = [
            self._lanes(operand, region.source)
            for operand, region in enumerate(sch.get(main).reads)
        ]

    def _columns_outside(self) -> bool:
        """Whether B's rows in memory run along K (weights OHWI) rather than along J."""
        stmt = self.sch.get(self.main)
        innermost = stmt.reads[1].region[-1].min
        reduced = [v.var for v in stmt.iter_vars if v.iter_type == tirx.IterVar.CommReduce]
        used = tirx.analysis.undefined_vars(innermost)
        return any(var.same_as(one) for var in used for one in reduced)

    def build(self) -> None:
        sch, tile = self.sch, self.tile
        self._normalize()
        outer, k0, k1, warp = self._split()
        shared_a = self._stage(outer, 0, k0)
        shared_b = self._stage(outer, 1, k0)
        auto_inline_producers(sch, shared_a)
        auto_inline_producers(sch, shared_b)
        self._pipeline(k0, k1, (shared_a, shared_b))
        fragment_a = sch.cache_read(outer, 0, "wmma.matrix_a")
        fragment_b = sch.cache_read(outer, 1, "wmma.matrix_b")
        sch.compute_at(fragment_a, k1)
        sch.compute_at(fragment_b, k1)
        result = sch.cache_write(outer, 0, tile.result_scope)
        store = sch.cache_write(outer, 0, "wmma.accumulator")
        sch.reverse_compute_at(store, warp)
        sch.reverse_compute_at(result, warp)
        self._micro_tiles(store)
        init = sch.decompose_reduction(outer, k0)
        self._tensorize(fragment_a, fragment_b, store, init)
        self.inline_behind(sch, result)
        flat = sch.fuse(*sch.get_loops(result)[-2:])
        lanes = 4 if tile.per_warp[0] * tile.per_warp[1] * MICRO * MICRO % (WARP * 4) == 0 else 2
        _, thread, lane = sch.split(flat, [None, WARP, lanes])
        sch.bind(thread, "threadIdx.x")
        sch.vectorize(lane)

    def _normalize(self) -> None:
        """Bring the block to C[S, I, J] += A[S, I, K] * B[S, J, K] (or B[S, K, J])."""
        sch, main, tile = self.sch, self.main, self.tile
        a, b = sch.reindex(main, ("read", 0)), sch.reindex(main, ("read", 1))
        c = sch.reindex(main, ("write", 0))
        traits = detect_iter_traits(sch.get(main))
        assert traits is not None
        s, i, j, k = Kind.kIter_S, Kind.kIter_I, Kind.kIter_J, Kind.kIter_K
        order_b = [s, j, k] if self.transposed_b else [s, k, j]
        sch.transform_layout(a, ("write", 0), make_iter_fusion_index_map(traits[0], [s, i, k]))
        sch.transform_layout(b, ("write", 0), make_iter_fusion_index_map(traits[1], order_b))
        sch.transform_layout(c, ("read", 0), make_iter_fusion_index_map(traits[2], [s, i, j]))
        sch.transform_block_layout(main, make_iter_fusion_index_map(traits[3], [s, i, j, k]))
        sch.pad_einsum(main, [1, tile.rows, tile.columns, MICRO * tile.depth])

    def _split(self) -> tuple[Any, Any, Any, Any]:
        """Loops over blocks, warps, stages and WMMA operations.

        Returns
        -------
        tuple of SBlockRV and three LoopRV
            The block of one WMMA operation, the loops over stages and within one, and over warps.
        """
        sch, tile = self.sch, self.tile
        batch, i, j, k = sch.get_loops(self.main)
        i, inner_i = sch.split(i, [None, MICRO])
        j, inner_j = sch.split(j, [None, MICRO])
        k, inner_k = sch.split(k, [None, MICRO])
        sch.reorder(i, j, k, inner_i, inner_j, inner_k)
        outer = sch.blockize(inner_i)
        i0, i1, i2 = sch.split(i, [None, tile.warps[0], tile.per_warp[0]])
        j0, j1, j2 = sch.split(j, [None, tile.warps[1], tile.per_warp[1]])
        k0, k1 = sch.split(k, [None, tile.depth])
        sch.reorder(i0, j0, j1, i1, k0, k1, i2, j2)
        warp = sch.fuse(j1, i1)
        sch.bind(batch, "blockIdx.z")
        sch.bind(i0, "blockIdx.x")
        sch.bind(j0, "blockIdx.y")
        sch.bind(warp, "threadIdx.y")
        return outer, k0, k1, warp

    def _stage(self, outer: Any, operand: int, k0: Any) -> Any:
        """Copy one stage of an operand to shared memory, by all threads together."""
        sch, tile = self.sch, self.tile
        block = sch.cache_read(outer, operand, "shared.dyn")
        sch.compute_at(block, k0)
        flat = sch.fuse(*sch.get_loops(block)[-2:])
        warps = tile.warps[0] * tile.warps[1]
        _, warp, thread, lane = sch.split(flat, [None, warps, WARP, self.lanes[operand]])
        sch.bind(thread, "threadIdx.x")
        sch.bind(warp, "threadIdx.y")
        sch.vectorize(lane)
        sch.storage_align(block, 0, axis=-2, factor=16, offset=SKEW)
        return block

    def _lanes(self, operand: int, source: tirx.Buffer) -> int:
        """Elements that a thread copies at once."""
        tile = self.tile
        threads = tile.warps[0] * tile.warps[1] * WARP
        elements = (tile.rows if operand == 0 else tile.columns) * MICRO * tile.depth
        lanes = _lanes_in_a_row(source)
        while elements % (threads * lanes):
            lanes //= 2
        return lanes

    def _pipeline(self, k0: Any, k1: Any, copies: tuple[Any, Any]) -> None:
        """Let copies of later stages go on beside this one's products."""
        sch, tile = self.sch, self.tile
        steps = int(sch.get(k0).extent)
        stage = tile.stage_bytes(transposed=self.transposed_b)
        ahead = stages_ahead(steps, stage, tile.result_bytes, self.gpu)
        # The least that goes past registers are four bytes.
        if ahead and min(self.lanes) > 1 and all(is_plain_copy(sch, copy) for copy in copies):
            sch.annotate(k0, "software_pipeline_order", [0, 1, 3, 2, 4])
            sch.annotate(k0, "software_pipeline_stage", [0, 0, ahead - 1, ahead, ahead])
            sch.annotate(k0, "software_pipeline_async_stages", [0])
        else:
            for copy in copies:
                sch.annotate(copy, "tirx.manifest_shared_memory_local_stage", 1)
                sch.annotate(copy, "double_buffer_scope", 0)
            # The next stage: global to registers, then multiply, then registers to shared memory.
            sch.annotate(k0, "software_pipeline_order", [0, 3, 1, 4, 5, 2, 6])
            sch.annotate(k0, "software_pipeline_stage", [0, 0, 0, 0, 0, 1, 1])
        sch.annotate(k1, "software_pipeline_order", [0, 1, 2])
        sch.annotate(k1, "software_pipeline_stage", [0, 0, 1])

    def _micro_tiles(self, block: Any) -> Any:
        """Split a fragment's copy into single WMMA tiles; the loop to tensorize is returned."""
        sch = self.sch
        i, j = sch.get_loops(block)[-2:]
        i0, i1 = sch.split(i, [None, MICRO])
        j0, j1 = sch.split(j, [None, MICRO])
        sch.reorder(i0, j0, i1, j1)
        return i0, j0, i1

    def _tensorize(self, fragment_a: Any, fragment_b: Any, store: Any, init: Any) -> None:
        sch = self.sch
        names = intrinsics(self.dtype, self.transposed_b, self.tile.result_scope)
        for fragment, intrinsic in ((fragment_a, names.load_a), (fragment_b, names.load_b)):
            outer_i, outer_j, micro = self._micro_tiles(fragment)
            sch.unroll(outer_i)
            sch.unroll(outer_j)
            sch.tensorize(micro, intrinsic)
        sch.tensorize(sch.get_loops(sch.get_child_blocks(init)[0])[-2], names.fill)
        sch.tensorize(sch.get_loops(store)[-2], names.store)
        sch.tensorize(sch.get_loops(self.main)[-3], names.multiply)
