"""The page of time against error, and its picture, from rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.precision import page, picture


def _who(name: str, ratio: float, error: float, *, ours: bool) -> dict[str, Any]:
    spread = {"low": ratio - 0.05, "high": ratio + 0.05, "ms": 10 * ratio}
    return {"name": name, "ours": ours, "ratio": ratio, "error": error, **spread}


ROW = {
    "network": "net",
    "max_error": 0.05,
    "targets": ["llvm", "onednn"],
    "threads": 1,
    "load": 2.0,
    "budget_sec": 60.0,
    "commit": "abc",
    "when": "today",
    "machine": {"cpu": "a processor", "cores": 2},
    "who": [
        _who("OpenVINO, float32", 1.0, 0.0, ours=False),
        _who("exact", 0.9, 0.0, ours=True),
        _who("search, the answer", 0.6, 0.04, ours=True),
    ],
}


def test_the_page_has_our_partitionings_by_time_and_the_conditions() -> None:
    shown = page([ROW])
    ours, others = shown.split("## Others")
    assert ours.index("| net | search, the answer | 0.60 (0.55 to 0.65) | 6.00 | 0.0400 |") < (
        ours.index("| net | exact | 0.90 (0.85 to 0.95) | 9.00 | 0.0000 |")
    )
    assert "OpenVINO, float32 | 1.00" in others
    assert "- net: 1 thread(s), 0.05 allowed, llvm, onednn, 60 s; a processor, load 2.0" in shown


def test_the_picture_names_the_answer(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture([ROW, {**ROW, "network": "other"}], tmp_path / "net.svg")
    drawn = (tmp_path / "net.svg").read_text(encoding="utf-8")
    assert drawn.count("<!--  answer -->") == 2
    assert "<!-- other -->" in drawn
