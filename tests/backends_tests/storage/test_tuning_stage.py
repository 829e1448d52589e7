"""The stage that all backends tune by: look up, measure what is missing, record; or replay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from collage.backends.contract.errors import CodegenError, ReplayMissError
from collage.backends.storage import TuningRecord, TuningStage, TuningStore, read_findings

GPU = {"name": "a GPU", "compute_capability": 90}


class Squares(TuningStage[int, int]):
    """Finds squares; there is none of a negative number."""

    def __init__(self, store: TuningStore, *, is_here: bool = True) -> None:
        super().__init__(store, "sm_90a", GPU if is_here else None)
        self.measured: list[list[int]] = []

    def key(self, question: int) -> dict[str, Any]:
        return {"number": question}

    def describe(self, question: int) -> str:
        return f"the number {question}"

    def read(self, question: int, record: TuningRecord) -> int | None:
        answer = record.result["square"]
        return answer if isinstance(answer, int) else None

    def measure(self, questions: Sequence[int], failed: dict[int, CodegenError]) -> dict[int, int]:
        self.measured.append(list(questions))
        found = {}
        for question in questions:
            if question < 0:
                failed[question] = CodegenError(f"{question} is negative", value=question)
                continue
            found[question] = question**2
            if not self.store.replay:
                self.record(question, {"square": question**2})
        return found


class Calculated(Squares):
    """As it takes no measurement to find them."""

    replay_must_know = False


def store(folder: Path, log: Path | None = None, *, replay: bool = False) -> TuningStore:
    return TuningStore("squares", 1, folder / "tuning" / "found.jsonl", log, replay=replay)


def test_what_is_known_is_not_measured_again(tmp_path: Path) -> None:
    first, second = Squares(store(tmp_path)), Squares(store(tmp_path))
    assert first.answers([2, 3, 2]) == {2: 4, 3: 9}
    assert second.answers([3, 4]) == {3: 9, 4: 16}
    assert (first.measured, second.measured) == ([[2, 3]], [[4]])


def test_one_that_fails_costs_no_other_its_answer(tmp_path: Path) -> None:
    stage = Squares(store(tmp_path))
    with pytest.raises(CodegenError, match="-1 is negative"):
        stage.answers([-1, 5, -2])
    known, failed = stage.settle([-1, 5])
    assert (known, list(failed)) == ({5: 25}, [-1])
    assert stage.measured == [[-1, 5, -2], [-1]], "a failure is no finding"


def test_a_finding_that_leaves_the_question_open_is_replaced(tmp_path: Path) -> None:
    place = store(tmp_path)
    place.append({"number": 2}, GPU, {"square": None})
    assert Squares(place).answers([2]) == {2: 4}
    assert Squares(store(tmp_path, replay=True)).answers([2]) == {2: 4}


def test_where_nothing_can_be_measured_only_what_is_known_is_answered(tmp_path: Path) -> None:
    Squares(store(tmp_path)).answers([2])
    elsewhere = Squares(store(tmp_path), is_here=False)
    assert elsewhere.answers([2, 3]) == {2: 4} and elsewhere.measured == []
    assert Squares(store(tmp_path / "other"), is_here=False).answers([2]) == {}


def test_a_replay_needs_the_log_alone_and_writes_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    Squares(store(tmp_path, log)).answers([2, 3])
    before = log.read_bytes()
    for is_here in (True, False):
        strict = Squares(store(tmp_path / "empty", log, replay=True), is_here=is_here)
        assert strict.answers([3, 2]) == {2: 4, 3: 9}
        with pytest.raises(ReplayMissError, match=r"squares's tuning of the number 4 .*\(2 such\)"):
            strict.answers([2, 4, 5])
        assert strict.measured == []
    assert log.read_bytes() == before and not (tmp_path / "empty").exists()


def test_what_takes_no_measurement_is_made_again_in_a_replay(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    strict = Calculated(store(tmp_path / "empty", log, replay=True))
    assert strict.answers([2, 3]) == {2: 4, 3: 9}
    elsewhere = Calculated(store(tmp_path / "empty", log, replay=True), is_here=False)
    assert elsewhere.answers([2, 3]) == {}
    assert log.read_bytes() == b"" and not (tmp_path / "empty").exists()


def test_what_another_process_is_at_comes_last_and_is_found_then(tmp_path: Path) -> None:
    other = Squares(store(tmp_path))
    begun, go_on = Event(), Event()

    def find_seven() -> None:
        with other.store.claim([other.key(7)]):
            begun.set()
            assert go_on.wait(30)
            other.measure([7], {})

    class Noting(Squares):
        def measure(
            self, questions: Sequence[int], failed: dict[int, CodegenError]
        ) -> dict[int, int]:
            go_on.set()
            return super().measure(questions, failed)

    thread = Thread(target=find_seven)
    thread.start()
    assert begun.wait(30)
    ours = Noting(store(tmp_path))
    assert ours.answers([7, 8]) == {7: 49, 8: 64}
    thread.join()
    assert ours.measured == [[8]]
    assert len(read_findings(tmp_path / "tuning" / "found.jsonl")) == 2
