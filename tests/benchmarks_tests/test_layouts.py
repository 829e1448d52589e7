"""The table of layouts."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)

from benchmarks import layouts  # noqa: E402


def test_a_network_has_a_row_with_what_each_layout_for_all_took() -> None:
    row = layouts.compared("plain/espcn")
    assert row["tensors"] > 0 and row["largest_error"] < 1e-4
    assert row["over"]["search"] == [1.0, 1.0, 1.0]
    assert {"single:tvm", "single:onednn", "single:openvino"} <= {*row["over"], *row["same"]}
    assert "plain for all" in row["said"]
    (line,) = [
        line for line in layouts.page([row]).splitlines() if line.startswith("| plain/espcn")
    ]
    assert f"{row['ms']['search']:.3f}" in line
