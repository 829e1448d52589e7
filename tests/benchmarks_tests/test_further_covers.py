"""The table of three covers instead of one, from rows as they are kept."""

from __future__ import annotations

from typing import Any

from benchmarks.further_covers import page


def contender(name: str, whole_ms: float | None, ratio: float | None) -> dict[str, Any]:
    return {"name": name, "whole_ms": whole_ms, "sum_ms": 2.0, "ratio": ratio}


def test_a_row_says_what_each_cover_took_and_what_was_gained() -> None:
    row = {
        "network": "plain/net",
        "targets": ["llvm", "onednn"],
        "threads": 2,
        "machine": {"cpu": "some", "cores": "2", "load_average_before": "0.50"},
        "contenders": [contender("search", 2.2, 1.1), contender("cover:2", 2.0, None)],
        "chosen": ["search", "cover:2"],
        "added_sec": 12.3,
        "ratio": 1.1,
        "low": 1.05,
        "high": 1.15,
    }
    failed = {**row, "contenders": [contender("cover:2", None, None)], "ratio": None}
    text = page([row, failed])
    first, second = text.splitlines()[-4:-2]
    assert first == (
        "| plain/net | llvm, onednn | 2 | 1.10 | 1 (1.00) | none | search | cover:2 | "
        "1.100 (1.050–1.150) | 12 | 0.50 |"
    )
    assert "| did not run | none |" in second and "| 1 | 12 |" in second
