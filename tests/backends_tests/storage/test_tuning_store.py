"""What backends found by tuning: in the log and in the cache, asked in that order, never lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from collage.backends.contract.errors import LogError, ReplayMissError
from collage.backends.storage.findings_file import FindingsFile
from collage.backends.storage.tuning_record import TuningRecord
from collage.backends.storage.tuning_store import TuningStore, read_findings

H200 = {"name": "NVIDIA H200", "compute_capability": 90}
H100 = {"name": "NVIDIA H100", "compute_capability": 90}
A100 = {"name": "NVIDIA A100", "compute_capability": 80}
KEY = {"problem": [1, 2, 3], "dtype": "float16"}


def opened(folder: Path, log: Path | None = None, **how: Any) -> TuningStore:
    return TuningStore("toy", 1, folder / "cache" / "tuning.jsonl", log, **how)


def answer(log: TuningStore, key: dict[str, Any], device: dict[str, Any]) -> Any:
    found = log.find(key, device)
    return None if found is None else found.result["best"]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_finding_goes_to_the_log_and_to_the_cache(tmp_path: Path) -> None:
    first = opened(tmp_path, tmp_path / "a.jsonl")
    first.append(KEY, H200, {"best": 7})
    assert answer(first, KEY, H200) == 7
    (line,) = lines(tmp_path / "a.jsonl")
    assert line == {
        "kind": "tuning",
        "backend": "toy",
        "schema": 1,
        "key": KEY,
        "device": H200,
        "result": {"best": 7},
    }
    assert lines(tmp_path / "cache" / "tuning.jsonl") == [line]
    # Another model on this machine, and another machine with this log.
    assert answer(opened(tmp_path), KEY, H200) == 7
    assert answer(opened(tmp_path / "elsewhere", tmp_path / "a.jsonl"), KEY, H200) == 7
    assert not (tmp_path / "elsewhere").exists()


def test_the_log_goes_before_the_cache_and_gets_what_only_the_cache_knows(tmp_path: Path) -> None:
    other = {**KEY, "dtype": "float32"}
    opened(tmp_path).append(KEY, H200, {"best": 1})
    opened(tmp_path).append(other, H200, {"best": 2})
    opened(tmp_path / "elsewhere", tmp_path / "log").append(KEY, H200, {"best": 3})
    log = opened(tmp_path, tmp_path / "log")
    assert (answer(log, KEY, H200), answer(log, other, H200)) == (3, 2)
    assert [line["result"]["best"] for line in lines(tmp_path / "log")] == [3, 2]
    assert answer(log, other, H200) == 2
    assert len(lines(tmp_path / "log")) == 2, "once is enough"
    assert answer(opened(tmp_path / "third", tmp_path / "log"), other, H200) == 2


def test_any_difference_is_a_miss(tmp_path: Path) -> None:
    opened(tmp_path).append(KEY, {**H200, "driver": 13000}, {"best": 1})
    cache = tmp_path / "cache" / "tuning.jsonl"
    assert answer(opened(tmp_path), KEY, H200) == 1, "the facts that are known agree"
    for device in (H100, {**H200, "driver": 12080}, {**H200, "clock": 1}):
        assert answer(opened(tmp_path), KEY, device) is None
    assert answer(opened(tmp_path), {**KEY, "more": 1}, H200) is None
    assert TuningStore("toy", 2, cache).find(KEY, H200) is None
    assert TuningStore("other", 1, cache).find(KEY, H200) is None


def test_two_logs_merge_by_concatenation_and_the_last_of_equals_counts(tmp_path: Path) -> None:
    for name, best in (("a", 1), ("b", 2)):
        opened(tmp_path / name, tmp_path / f"{name}.jsonl").append(KEY, H200, {"best": best})
    opened(tmp_path / "b", tmp_path / "b.jsonl").append({"other": 1}, A100, {"best": 9})
    both = tmp_path / "both.jsonl"
    for order, wanted in (("ab", 2), ("ba", 1)):
        both.write_bytes(b"".join((tmp_path / f"{n}.jsonl").read_bytes() for n in order))
        merged = opened(tmp_path / "new", both)
        assert answer(merged, KEY, H200) == wanted
        assert answer(merged, {"other": 1}, A100) == 9


@pytest.mark.parametrize("cut", [3, 20, 60, -1])
def test_a_torn_line_is_skipped_with_a_warning_and_the_next_record_kept(
    tmp_path: Path, cut: int
) -> None:
    path = tmp_path / "log"
    torn = TuningRecord("toy", 1, {"torn": 1}, H200, {"best": 5}).to_json()[:cut]
    path.write_text(torn)
    with pytest.warns(UserWarning, match=r"log:1: a torn line is skipped"):
        opened(tmp_path, path).append(KEY, H200, {"best": 6})
    assert path.read_text().splitlines()[0] == torn
    with pytest.warns(UserWarning, match=r"log:1: a torn line is skipped"):
        assert answer(opened(tmp_path / "new", path), KEY, H200) == 6


def test_measurements_and_foreign_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "log"
    measured = '{"kind": "partition", "workload": "tuning", "schema": 1}'
    incomplete = '{"kind": "tuning", "backend": "toy", "schema": 1, "key": {}, "device": []}'
    path.write_text("\n".join([measured, "", "[]", '"tuning"', ""]))
    opened(tmp_path, path).append(KEY, H200, {"best": 6})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (only,) = read_findings(path)
    assert only.question == TuningRecord("toy", 1, KEY, A100, {}).question
    path.write_text(incomplete)
    with pytest.warns(UserWarning, match="skipped"):
        assert read_findings(path) == []


def test_a_replay_writes_nothing_and_a_miss_is_an_error(tmp_path: Path) -> None:
    log = tmp_path / "log"
    opened(tmp_path).append(KEY, H200, {"best": 1})
    before = (tmp_path / "cache" / "tuning.jsonl").read_bytes()
    log.write_text("")
    strict = opened(tmp_path, log, replay=True)
    assert answer(strict, KEY, H200) == 1
    with pytest.raises(LogError, match="replay"):
        strict.append(KEY, H200, {"best": 2})
    assert log.read_bytes() == b""
    assert (tmp_path / "cache" / "tuning.jsonl").read_bytes() == before
    error = strict.miss("matmul (1, 2, 3)", 4)
    assert isinstance(error, ReplayMissError) and error.value == "matmul (1, 2, 3)"
    assert "toy's tuning of matmul (1, 2, 3)" in str(error) and "(4 such)" in str(error)


def test_without_a_gpu_the_one_that_was_tuned_on_last_is_meant(tmp_path: Path) -> None:
    log = opened(tmp_path / "a", tmp_path / "log")
    for device in (H200, H100, A100):
        log.append(KEY, {**device, "driver": 1}, {"best": 1})
    opened(tmp_path / "b").append(KEY, H200, {"best": 1})
    assert log.device_elsewhere(90) == H100
    assert log.device_elsewhere(80) == A100
    assert log.device_elsewhere(120) is None
    # The log goes before the cache; other backends' findings tell of the device too.
    assert opened(tmp_path / "b", tmp_path / "log").device_elsewhere(90) == H100
    assert opened(tmp_path / "b").device_elsewhere(90) == H200
    cache = tmp_path / "b" / "cache" / "tuning.jsonl"
    assert TuningStore("other", 3, cache).device_elsewhere(90) == H200


def test_bytes_are_kept_once_and_found_in_the_log_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    store = opened(tmp_path, log)
    noise = os.urandom(5000)
    for data in (b"plan" * 5000, noise, b"plan" * 5000, b""):
        store.append({"of": len(data)}, H200, {"best": 1, "plan": store.keep(data)})
    kinds = [line["kind"] for line in lines(log)]
    assert kinds == ["blob", "tuning", "blob", "tuning", "tuning", "blob", "tuning"]
    encodings = [line["encoding"] for line in lines(log) if line["kind"] == "blob"]
    assert encodings == ["zlib+base64", "base64", "base64"]
    again = opened(tmp_path / "elsewhere", log, replay=True)
    for data in (b"plan" * 5000, noise, b""):
        found = again.find({"of": len(data)}, H200)
        assert found is not None and again.blob(found.blob("plan")) == data
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(LogError, match="replay"):
        again.keep(b"more")


def test_what_only_the_cache_knows_is_added_to_the_log_with_its_bytes(tmp_path: Path) -> None:
    store = opened(tmp_path)
    small, large = store.keep(b"small"), store.keep(b"large", in_log=False)
    store.append(KEY, H200, {"small": small, "large": large})
    log = tmp_path / "log"
    assert opened(tmp_path, log).find(KEY, H200) is not None
    assert [line["kind"] for line in lines(log)] == ["blob", "tuning"]
    for folder, wanted in ((tmp_path, b"large"), (tmp_path / "elsewhere", None)):
        again = opened(folder, log)
        found = again.find(KEY, H200)
        assert found is not None and again.blob(found.blob("small")) == b"small"
        assert again.blob(found.blob("large")) == wanted
        assert again.blob(found.blob("none")) is None


def test_bytes_that_are_not_those_are_never_taken(tmp_path: Path) -> None:
    log = tmp_path / "log"
    store = opened(tmp_path, log)
    store.append(KEY, H200, {"plan": store.keep(b"right")})
    text = log.read_text()
    for wrong in (text.replace("cmlnaHQ=", "d3Jvbmc="), text.replace("cmlnaHQ=", "???")):
        assert wrong != text
        log.write_text(wrong)
        again = opened(tmp_path / "elsewhere", log)
        found = again.find(KEY, H200)
        assert found is not None and again.blob(found.blob("plan")) is None
    (blob,) = (tmp_path / "cache" / "blobs").iterdir()
    here = opened(tmp_path, log).find(KEY, H200)
    assert here is not None and opened(tmp_path, log).blob(here.blob("plan")) == b"right"
    blob.write_bytes(b"torn")
    assert opened(tmp_path, log).blob(here.blob("plan")) is None


def test_blobs_that_another_program_wrote_again_are_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    store = opened(tmp_path, log)
    store.append(KEY, H200, {"plan": store.keep(b"right")})
    rewritten = (json.dumps(dict(reversed(line.items())), indent=None) for line in lines(log))
    log.write_text("".join(f"{line}\n" for line in rewritten))
    again = opened(tmp_path / "elsewhere", log)
    found = again.find(KEY, H200)
    assert found is not None and again.blob(found.blob("plan")) == b"right"


def test_a_log_is_read_once_a_process_and_read_again_when_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, taken = tmp_path / "log", []
    opened(tmp_path, log).append(KEY, H200, {"best": 1})
    take = FindingsFile._take
    monkeypatch.setattr(FindingsFile, "_take", lambda *args: (taken.append(args), take(*args)))
    for _ in range(3):
        assert answer(opened(tmp_path, log), KEY, H200) == 1
    assert taken == []
    with log.open("a") as other_process:
        other_process.write(TuningRecord("toy", 1, KEY, H200, {"best": 2}).to_json() + "\n")
    assert answer(opened(tmp_path, log), KEY, H200) == 2 and len(taken) == 1
    # Shorter, longer, and of the same length.
    for best in ([3], [4] * 9, [5] * 9):
        records = [TuningRecord("toy", 1, KEY, H200, {"best": b}).to_json() for b in best]
        log.write_text("".join(f"{record}\n" for record in records))
        assert answer(opened(tmp_path, log), KEY, H200) == best[0]
    log.unlink()
    (tmp_path / "cache" / "tuning.jsonl").unlink()
    assert answer(opened(tmp_path, log), KEY, H200) is None


def test_a_key_is_free_again_as_soon_as_its_finding_is_added(tmp_path: Path) -> None:
    ours, other = opened(tmp_path), opened(tmp_path)
    keys = [{"k": 1}, {"k": 2}]
    with ours.claim(keys) as held:
        assert held == [True, True]
        ours.append(keys[0], H200, {"best": 1})
        with other.claim(keys, patient=False) as left:
            assert left == [True, False]
    with other.claim(keys, patient=False) as left:
        assert left == [True, True]


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    with pytest.raises(LogError, match=r"log' cannot be written"):
        opened(tmp_path, tmp_path / "log").append(KEY, H200, {"best": 1})


WRITER = """
import sys
from pathlib import Path
from collage.backends.storage.tuning_store import TuningStore
log = TuningStore("toy", 1, Path(sys.argv[1]), Path(sys.argv[2]))
for i in range(40):
    log.append({"writer": sys.argv[3], "i": i}, {"name": "x"}, {"text": "y" * 5000})
"""


def test_processes_append_side_by_side(tmp_path: Path) -> None:
    places = [str(tmp_path / "cache.jsonl"), str(tmp_path / "log.jsonl")]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, *places, str(i)], env=os.environ)
        for i in range(3)
    ]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]
    for place in places:
        found = {(r.key["writer"], r.key["i"]) for r in read_findings(Path(place))}
        assert found == {(str(w), i) for w in range(3) for i in range(40)}
        assert len(Path(place).read_text().splitlines()) == 120
