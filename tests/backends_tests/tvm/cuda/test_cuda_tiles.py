"""The tiles of tensor-core products, without compiling anything."""

from __future__ import annotations

import pytest

from benchmarks.gpu.cases.compiling import cuda_target
from collage.backends.tvm.cuda.schedules import Gpu
from collage.backends.tvm.cuda.schedules.ahead import stages_ahead
from collage.backends.tvm.cuda.schedules.tiles import NARROW, TILES, Tile


@pytest.mark.parametrize("tile", TILES + NARROW, ids=str)
def test_every_tile_can_be_launched(tile: Tile) -> None:
    assert can_launch(tile)


def test_static_memory_counts_where_dynamic_memory_is_small() -> None:
    """A 64 x 64 tile of this depth was refused by the driver: 36 KiB dynamic, 17 KiB static."""
    assert not can_launch(Tile((2, 2), (2, 2), depth=4))


def can_launch(tile: Tile) -> bool:
    """TVM raises a kernel's limit of shared memory for dynamic memory of 48 KiB and more, and does
    not count static memory: both together may exceed 48 KiB only if the dynamic part does."""
    operands = 2 * 2 * (tile.rows + tile.columns) * (16 * tile.depth + 8)
    results = 4 * tile.rows * (tile.columns + 4) if tile.result_scope == "shared" else 0
    return operands >= 48 << 10 or operands + results <= 48 << 10


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_90a"])
@pytest.mark.parametrize("tile", TILES + NARROW, ids=str)
def test_stages_ahead_fit(tile: Tile, arch: str, transposed: bool) -> None:
    """A 64 x 16 tile was refused by the driver: 45 KiB of dynamic memory, 4 of static."""
    gpu = Gpu.of_target(cuda_target(arch))
    limit = {"sm_80": 163, "sm_86": 99, "sm_90a": 227}[arch] << 10
    for steps in range(1, 9):
        stage = tile.stage_bytes(transposed=transposed)
        ahead = stages_ahead(steps, stage, tile.result_bytes, gpu)
        assert ahead in (0, 2, 3) and ahead < steps
        dynamic, static = stage * (ahead + 1), tile.result_bytes
        if ahead:
            assert dynamic + static <= limit
            assert dynamic >= 48 << 10 or dynamic + static <= 48 << 10
    assert stages_ahead(8, 11520, 4096, gpu) == 2
    assert stages_ahead(8, 16384, 4096, gpu) == 3
