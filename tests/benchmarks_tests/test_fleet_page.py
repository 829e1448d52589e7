"""The page of searches on many workers says what was run, and what was not."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.fleet.__main__ import page
from benchmarks.fleet.simulated_search import Taken
from collage.cost.progress import Crew, ProgressEvent


def test_efficiency_is_what_many_workers_gain() -> None:
    taken = Taken("net", 4, True, 10.0, 30.0, 40.0, 2, 20, 4.0, 1e-3)
    alone = Taken("net", 1, False, 36.0, 30.0, 40.0, 3, 20, 4.0, 1e-3)
    kept = {"far": {**asdict(taken), "load": 3.0}, "alone": asdict(alone)}
    text = page({"simulated": kept, "simulated_notes": ["What bounds it."]})
    assert text.index("| 75% |") < text.index("What bounds it.") < text.index("## Two GPUs")
    assert "| net | 1 |  | 20 | 3 | 36.0 | 100% | 83% | 100% | 0 |" in text
    assert "| net | 4 | far | 20 | 2 | 10.0 | 90% | 75% | 100% | 3 |" in text
    assert "not run: no two GPUs were at hand" in text


@pytest.mark.torch
def test_a_search_that_is_cut_off_has_left_how_far_it_came(tmp_path: Path) -> None:
    from benchmarks.fleet.gpus import Written

    path = tmp_path / "fleet_gpus.jsonl"
    for gpus in (1, 2):
        written = Written(path, gpus, "none")
        written(ProgressEvent("import", 1, 1, "a model"))
        written(ProgressEvent("measure", gpus, 9, "relu on tvm", Crew(2, 1, 0, 1)))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["gpus"], line["stage"], line["done"]) for line in lines] == [
        *((1, "import", 1), (1, "measure", 1), (2, "import", 1), (2, "measure", 2))
    ]
    assert lines[-1]["crew"]["busy"] == 1 and 0.0 <= lines[-1]["at_sec"] < 60.0


def test_gpus_stand_side_by_side() -> None:
    one = {"gpus": 1, "taken_sec": 100.0, "measured": 200, "answer_sec": 2e-3}
    two = {**one, "gpus": 2, "compiled": "kept", "taken_sec": 55.0}
    text = page({"gpus": {"searches": [one, two]}})
    assert "| 1 | none | 100 | 200 | 2.000 |\n| 2 | kept | 55 | 200 | 2.000 |" in text
    assert "not run" not in text
