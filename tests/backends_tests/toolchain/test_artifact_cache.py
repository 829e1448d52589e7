"""What is made once: whole or not at all, by one of many who ask, and evicted oldest first."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from collage.backends.toolchain.artifact_cache import (
    evict_oldest,
    made_and_held,
    make_once,
    replacing,
)


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "kind" / "a.o"
    assert make_once(path, lambda p: p.write_text("first")) == path
    make_once(path, lambda p: p.write_text("second"))
    assert path.read_text() == "first"
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_is_made_like_a_file(tmp_path: Path) -> None:
    def make(path: Path) -> None:
        path.mkdir()
        (path / "data").write_text("all of it")

    path = make_once(tmp_path / "kind" / "key", make)
    assert (path / "data").read_text() == "all of it"
    assert list(path.parent.iterdir()) == [path]


def test_who_fails_leaves_nothing_and_the_next_one_tries(tmp_path: Path) -> None:
    path = tmp_path / "kind" / "a.o"

    def fail(partial: Path) -> None:
        partial.write_text("half")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        make_once(path, fail)
    assert list(path.parent.iterdir()) == []
    assert make_once(path, lambda p: p.write_text("whole")).read_text() == "whole"


def test_all_who_ask_at_once_wait_for_one(tmp_path: Path) -> None:
    path, made = tmp_path / "kind" / "a.o", []

    def make(partial: Path) -> None:
        made.append(partial)
        time.sleep(0.1)
        partial.write_text("whole")

    threads = [threading.Thread(target=make_once, args=(path, make)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert path.read_text() == "whole"


def test_leftovers_of_the_killed_go_and_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "kind" / "a.o"
    path.parent.mkdir()
    mine, other = path.with_name("a.0123.part.o"), path.with_name("b.0123.part.o")
    for leftover in (mine, other):
        leftover.write_text("half")
    make_once(path, lambda p: p.write_text("whole"))
    assert set(path.parent.iterdir()) == {path, other}


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("old")
    with replacing(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    with pytest.raises(ValueError, match="no"), replacing(path) as partial:
        partial.write_text("half")
        raise ValueError("no")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_the_oldest_go_first_and_what_is_held_waits(tmp_path: Path) -> None:
    folder = tmp_path / "kind"
    for age, name in enumerate("abc"):
        path = make_once(folder / name, lambda p: p.write_bytes(bytes(10)))
        os.utime(path, (1000 - age, 1000 - age))
    with made_and_held(folder / "c", lambda p: None):  # Used now: the youngest of them.
        evictions = threading.Thread(target=evict_oldest, args=(folder, 5))
        evictions.start()
        evictions.join(0.2)
        assert {p.name for p in folder.iterdir()} == {"c"}
    evictions.join()
    assert list(folder.iterdir()) == []
