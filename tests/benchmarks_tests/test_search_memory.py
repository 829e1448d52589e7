"""What a search holds, watched from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.networks.models import light_model
from benchmarks.search_memory import Peak, page, peak_of


def test_the_peak_counts_every_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.search_memory.TARGETS", ("llvm",))
    peak = peak_of(light_model("squeezenet"), 1.0, tmp_path)
    assert peak.weights == (tmp_path / "model.onnx").stat().st_size
    assert peak.search + peak.largest_child <= peak.total
    # An interpreter that has imported TVM holds more than this, and the whole is no terabyte.
    assert 50e6 < peak.search < 5e9
    assert peak.processes >= 1 and peak.took_sec > 1


def test_the_page_states_what_is_allowed() -> None:
    text = page({"net": Peak(100_000_000, 900_000_000, 500_000_000, 300_000_000, 3, 12.3)}, 0)
    assert "| net | 100 | 900 | 1,374 | 500 | 300 | 3 | 12 |" in text
    assert "no budget" in text
