"""The page of searches on many workers says what was run, and what was not."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fleet import two_gpus
from benchmarks.fleet.__main__ import page
from benchmarks.fleet.simulated_search import Taken
from collage.cost.progress import ProgressEvent, Workforce


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
        written(ProgressEvent("measure", gpus, 9, "relu on tvm", Workforce(2, 1, 0, 1)))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["gpus"], line["stage"], line["done"]) for line in lines] == [
        *((1, "import", 1), (1, "measure", 1), (2, "import", 1), (2, "measure", 2))
    ]
    assert lines[-1]["workforce"]["busy"] == 1 and 0.0 <= lines[-1]["at_sec"] < 60.0


def test_gpus_stand_side_by_side() -> None:
    one = {"gpus": 1, "taken_sec": 100.0, "measured": 200, "answer_sec": 2e-3}
    two = {**one, "gpus": 2, "compiled": "kept", "taken_sec": 55.0}
    text = page({"gpus": {"searches": [one, two]}})
    assert "| 1 | none | 100 | 200 | 2.000 |\n| 2 | kept | 55 | 200 | 2.000 |" in text
    assert "not run" not in text


def searched(gpus: int, taken_sec: float, backend: str = "cudnn", sec: float = 1e-4) -> Any:
    """What a search on GPUs says of itself."""
    parts = [{"backend": "cutlass", "nodes": [0], "sec": 4e-4}]
    parts.append({"backend": backend, "nodes": [1, 2], "sec": sec})
    workers = [{"name": f"cuda:{n}", "busy_sec": 20.0, "left_out": ""} for n in range(gpus)]
    answer_sec = sum(part["sec"] for part in parts)
    return {
        "gpus": gpus,
        "taken_sec": taken_sec,
        "measured": 9,
        "answer_sec": answer_sec,
        "stages_sec": {"import": 2.0, "compile": taken_sec - 30.0},
        "workers": workers,
        "partitions": parts,
    }


def test_two_gpus_are_compared_in_turns_and_a_run_goes_on_with_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([searched(1, 170.0), searched(2, 100.0), (None, "the time was up")])
    asked: list[list[str]] = []

    def search(visible: list[str], progress: Path, limit_sec: float) -> Any:
        asked.append(visible)
        one = next(found)
        return one if isinstance(one, tuple) else (one, "")

    monkeypatch.setattr(two_gpus, "cold_search", search)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    two_gpus.main(out=tmp_path, budget=500.0, searches=2)
    assert asked == [["4"], ["4", "7"]]
    two_gpus.main(out=tmp_path, budget=500.0, searches=4)
    assert asked[2:] == [["4", "7"]]
    text = (tmp_path / "two_gpus.md").read_text()
    assert "Two GPUs are **1.70** times as fast as one." in text
    assert "| 1 | 170.0 | 140.0 | 30.0 | 9 | cuda:0 20 s | 0.500 |" in text
    assert "| 2 | not within 490: the time was up |" in text
    assert "Search 2 (2 GPUs): the same answer as the first." in text
    two_gpus.main(out=tmp_path, budget=100.0, searches=8)
    assert len(asked) == 3, "there was no time for one more"


def test_answers_that_differ_are_a_tie_or_not() -> None:
    first, tied, worse = (
        searched(1, 9.0),
        searched(2, 9.0, "cublas", 1.05e-4),
        searched(2, 9.0, "tvm", 2e-4),
    )
    text = two_gpus.page(
        two_gpus.Record(two_gpus.Record.read(Path("none")).about, [first, tied, worse])
    )
    assert "1 of 2 partitions are others" in text
    assert "0.1050 ms, those in their place 0.1000 ms: 1.0% of the whole, a tie." in text
    assert "20.0% of the whole, no tie." in text
