"""Constants of several models as one array: in memory, or in a file that is mapped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collage.backends.toolchain.shared_bytes import SharedBytes


@pytest.mark.parametrize("in_a_file", [False, True])
def test_pieces_stand_where_they_were_placed(in_a_file: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng()
    pieces = [rng.bytes(int(size)) for size in rng.integers(1, 100_000, 20)]
    shared = SharedBytes(tmp_path if in_a_file else None)
    places = [shared.place(piece) for piece in [*pieces, *pieces[::-1]]]
    assert places[:20] == places[:19:-1] and all(place % 64 == 0 for place in places)
    data = shared.data()
    assert isinstance(data, np.memmap) == in_a_file and not data.flags.writeable
    for place, piece in zip(places, pieces, strict=False):
        assert data[place : place + len(piece)].tobytes() == piece
    del shared
    assert data[: len(pieces[0])].tobytes() == pieces[0] and not list(tmp_path.iterdir())


@pytest.mark.parametrize("in_a_file", [False, True])
def test_there_always_is_something(in_a_file: bool, tmp_path: Path) -> None:
    assert SharedBytes(tmp_path if in_a_file else None).data().tobytes() == bytes(64)
