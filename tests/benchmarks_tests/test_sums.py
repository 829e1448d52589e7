"""The table of sums and wholes."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)

from benchmarks import sums  # noqa: E402


def test_a_network_has_a_row_with_what_its_parts_and_the_whole_took() -> None:
    row = sums.search("plain/lenet")
    by_name = {one["name"]: one for one in row["contenders"]}
    assert {"search", "single:tvm"} <= set(by_name) and row["chosen"] in by_name
    assert all(one["whole_ms"] > 0.0 for one in by_name.values())
    assert by_name["search"]["sum_ms"] > 0.0
    (line,) = [line for line in sums.page([row]).splitlines() if "plain/lenet" in line]
    assert f"{by_name['search']['sum_ms']:.3f}" in line and row["chosen"] in line


def test_what_was_gained_is_told_of_one_contest() -> None:
    times = {"search": 2.2, "single:tvm": 2.0, "search:2": 1.6}
    row = {
        "network": "net",
        "commit": "0123456789ab",
        "search_sec": 60.0,
        "machine": {"load_average_before": "0.5", "cpu": "a CPU", "cores": "2"},
        "contenders": [{"name": n, "whole_ms": ms, "sum_ms": 1.1} for n, ms in times.items()],
        "chosen": "search:2",
        **{"ratio": 1.25, "low": 1.2, "high": 1.3},
    }
    line = sums.page([row]).splitlines()[-3]
    assert "| 1.100 | 2.200 | 2.00 | 1 | search:2 | 1.25 (1.20–1.30) | 60 |" in line
