"""The tiles of tensor-core products, without compiling anything."""

from __future__ import annotations

import pytest

from collage.backends.tvm.cuda.schedules.tensor_core import TILES, Tile


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_every_tile_can_be_launched(tile: Tile) -> None:
    assert tile.can_launch


def test_static_memory_counts_where_dynamic_memory_is_small() -> None:
    """A 64 x 64 tile of this depth was refused by the driver: 36 KiB dynamic, 17 KiB static."""
    assert not Tile((2, 2), (2, 2), depth=4).can_launch
