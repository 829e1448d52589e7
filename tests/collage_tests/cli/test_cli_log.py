"""``collage log`` and ``collage explain LOG`` on logs that the database itself wrote."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from collage.backends.storage import TuningStore
from collage.cli import main
from collage.cost.base import Cost, CostStatus
from collage.cost.database import JsonLinesDatabase
from collage.cost.database.record import PARTITION, TRANSITION, Record, RecordKey


def _record(workload: str, backend: str, cost: Cost, device: str = "cpu A, 2 cores") -> Record:
    key = RecordKey(
        kind=PARTITION,
        workload=f"{workload}-{backend}",
        tensors="1x8 float32 -> 1x8 float32",
        target="[]",
        versions=(("tvm", "0.27.0"),),
        compiler="g++ 12",
        tvm="0.27.0",
        device=device,
        driver="none",
        num_threads=2,
        config="{}",
    )
    return Record(key, cost, description=workload, backend=backend, measured_at="2026-01-01")


def _valid(median_sec: float) -> Cost:
    return Cost(CostStatus.VALID, median_sec, median_sec / 50, (median_sec,))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    database = JsonLinesDatabase(path)
    database.append(_record("conv2d", "onednn", _valid(0.001)))
    database.append(_record("conv2d", "tvm", _valid(0.003)))
    database.append(_record("matmul", "tvm", _valid(0.0002)))
    probe = _record("nothing", "tvm", _valid(1e-6))
    database.append(dataclasses.replace(probe, key=dataclasses.replace(probe.key, kind=TRANSITION)))
    crash = Cost(CostStatus.CRASHED, reason="signal 11")
    database.append(_record("matmul", "openblas", crash))
    return path


def test_summary_counts_what_was_written(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with log.open("a") as file:
        file.write('{"foreign": 1}\n{"schema": 1, "torn')
    assert main(["log", str(log), "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["records"] == 5
    assert value["distinct_workloads"] == 3
    assert value["backends"] == {"onednn": 1, "tvm": 3, "openblas": 1}
    assert value["devices"] == {"cpu A, 2 cores, 2 threads": 5}
    assert value["invalid"] == [
        {"backend": "openblas", "status": "crashed", "reason": "signal 11", "records": 1}
    ]
    assert [p.split()[:2] for p in value["problems"]] == [["line", "6"], ["line", "7"]]


def _tune(log: Path, kernel: str) -> None:
    device = {"name": "NVIDIA H200", "compute_capability": 90}
    tuning = TuningStore("cutlass", 1, log.with_suffix(".cache"), log)
    tuning.append({"spec": kernel}, device, {"tried": []})


def test_tuned_kernels_are_counted_and_kept(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kernel in ("matmul", "conv2d", "matmul"):
        _tune(log, kernel)
    assert main(["log", str(log), "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["records"], value["tuned"], value["problems"]) == (5, {"cutlass": 2}, [])
    assert main(["log", str(log)]) == 0
    assert "tuned: cutlass (2)" in capsys.readouterr().out
    assert main(["explain", str(log)]) == 0
    assert "cutlass" not in capsys.readouterr().out
    merged = tmp_path / "merged.jsonl"
    assert main(["log", "merge", str(log), "-o", str(merged)]) == 0
    assert "7 records from 1 logs (1 repeated, 0 unreadable" in capsys.readouterr().out
    both = JsonLinesDatabase(merged), JsonLinesDatabase(log)
    assert list(both[0].findings()) == list(both[1].findings())
    assert list(both[0].records()) == list(both[1].records())


def test_blobs_are_counted_and_kept_once(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device = {"name": "NVIDIA H200", "compute_capability": 90}
    copy = tmp_path / "copy.jsonl"
    for place in (log, copy):
        store = TuningStore("cudnn", 1, tmp_path / place.stem / "cache.jsonl", place)
        for graph in ("conv", "pool"):
            plan = store.keep(b"plan" * 1000)
            store.append({"graph": graph}, device, {"plan": plan})
    assert main(["log", str(log), "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["tuned"], value["blobs"]) == ({"cudnn": 2}, {"count": 1, "bytes": 4000})
    assert (value["records"], value["problems"]) == (5, [])
    assert main(["log", str(log)]) == 0
    assert "bytes that findings refer to: 4000 in 1 blobs" in capsys.readouterr().out
    merged = tmp_path / "merged.jsonl"
    assert main(["log", "merge", str(log), str(copy), "-o", str(merged)]) == 0
    assert "8 records from 2 logs (3 repeated, 0 unreadable" in capsys.readouterr().out
    again = TuningStore("cudnn", 1, tmp_path / "none" / "cache.jsonl", merged, replay=True)
    found = again.find({"graph": "pool"}, device)
    assert found is not None and again.blob(found.blob("plan")) == b"plan" * 1000


def test_summary_in_words(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = log.read_bytes()
    assert main(["log", str(log)]) == 0
    text = capsys.readouterr().out
    assert "5 records of 3 distinct workloads" in text
    assert "1 × openblas crashed: signal 11" in text
    assert log.read_bytes() == before


def test_merge_keeps_distinct_records_in_order(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, merged = tmp_path / "b.jsonl", tmp_path / "merged.jsonl"
    added = _record("conv2d", "onednn", _valid(0.002), device="cpu B, 8 cores")
    lines = log.read_text().splitlines(keepends=True)
    other.write_text(lines[1] + "not json\n" + added.to_json() + "\n" + lines[0][:40])
    assert main(["log", "merge", str(log), str(other), "-o", str(merged)]) == 0
    captured = capsys.readouterr()
    assert "6 records from 2 logs (1 repeated, 2 unreadable lines left out)" in captured.out
    assert f"{other} line 2 is no JSON" in captured.err
    database = JsonLinesDatabase(merged, read_only=True)
    assert database.problems == []
    assert list(database.records()) == [
        *JsonLinesDatabase(log, read_only=True).records(),
        added,
    ]
    assert merged.read_text().splitlines()[:5] == log.read_text().splitlines()


def test_merge_into_one_of_its_sources(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "b.jsonl"
    newer = dataclasses.replace(_record("conv2d", "tvm", _valid(0.004)), measured_at="2026-02-02")
    other.write_text(newer.to_json() + "\n")
    assert main(["log", "merge", str(log), str(other), "-o", str(log)]) == 0
    found = JsonLinesDatabase(log, read_only=True).lookup(newer.key)
    assert found is not None
    assert found.cost.median_sec == 0.004
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_merge_never_overwrites_another_log(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "precious.jsonl"
    other.write_text("keep me\n")
    assert main(["log", "merge", str(log), "-o", str(other)]) == 2
    assert "exists" in capsys.readouterr().err
    assert other.read_text() == "keep me\n"


@pytest.mark.parametrize(
    "arguments",
    [["log", "{}"], ["log", "merge", "{}", "-o", "{}2"], ["explain", "{}"]],
)
def test_missing_log_is_the_user_s_mistake(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "missing.jsonl")
    assert main([a.format(missing) for a in arguments]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: there is no")
    assert list(tmp_path.iterdir()) == []


def test_explain_ranks_backends_of_a_log(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(log)]) == 0
    text = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    text = [line for line in text if " ms " in line or " µs " in line]
    assert text[0].startswith("conv2d 1x8 float32 -> 1x8 float32 onednn 1.00 ms ± 0.02")
    assert text[0].endswith("cheapest")
    assert text[1] == "tvm 3.00 ms ± 0.06 3.00×"
    assert not [line for line in text if "nothing" in line]


def test_explain_says_why_a_candidate_is_invalid(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(log)]) == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if "openblas" in x]
    assert line.split() == ["openblas", "crashed:", "signal", "11"]


def test_explain_shows_the_newest_of_several_versions(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = _record("conv2d", "tvm", _valid(0.003))
    key = dataclasses.replace(old.key, versions=(("tvm", "0.26.0"),))
    JsonLinesDatabase(log).append(
        dataclasses.replace(old, key=key, cost=_valid(0.009), measured_at="2025-01-01")
    )
    assert main(["explain", str(log)]) == 0
    text = capsys.readouterr().out
    assert "3.00 ms" in text
    assert "9.00 ms" not in text
