"""The page of searches on many workers says what was run, and what was not."""

from __future__ import annotations

from dataclasses import asdict

from benchmarks.fleet.__main__ import page
from benchmarks.fleet.simulated_search import Taken


def test_efficiency_is_what_many_workers_gain() -> None:
    taken = Taken("net", 4, True, 10.0, 30.0, 40.0, 2, 20, 4.0, 1e-3)
    alone = Taken("net", 1, False, 36.0, 30.0, 40.0, 3, 20, 4.0, 1e-3)
    kept = {"far": {**asdict(taken), "load": 3.0}, "alone": asdict(alone)}
    text = page({"simulated": kept, "simulated_notes": ["What bounds it."]})
    assert text.index("| 75% |") < text.index("What bounds it.") < text.index("## Two GPUs")
    assert "| net | 1 |  | 20 | 3 | 36.0 | 100% | 83% | 100% | 0 |" in text
    assert "| net | 4 | far | 20 | 2 | 10.0 | 90% | 75% | 100% | 3 |" in text
    assert "not run: no two GPUs were at hand" in text


def test_gpus_stand_side_by_side() -> None:
    one = {"gpus": 1, "taken_sec": 100.0, "measured": 200, "answer_sec": 2e-3}
    two = {**one, "gpus": 2, "compiled": "kept", "taken_sec": 55.0}
    text = page({"gpus": {"searches": [one, two]}})
    assert "| 1 | none | 100 | 200 | 2.000 |\n| 2 | kept | 55 | 200 | 2.000 |" in text
    assert "not run" not in text
