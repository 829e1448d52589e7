"""Several processes refine the same program: each counts, none repeats what another one did."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import optuna
import pytest

from collage.backends.contract.errors import LogError, SearchError
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import Partitioning
from collage.search.strategies import shared_study
from collage.search.strategies.evolutionary import refine
from collage.search.strategies.shared_study import SharedStudy
from tests.postgres import Server
from tests.search_tests.strategies.shared_refinement import Clock, problem

_PROGRAM = """
import runpy, sys
sys.modules["torch"] = None  # TVM imports it wherever it is installed, which takes seconds.
runpy.run_module("tests.search_tests.strategies.shared_refinement", run_name="__main__")
"""


@pytest.fixture(params=["sqlite", "postgresql", "journal"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'refine.db'}"
    if request.param == "journal":
        return str(tmp_path / "refine.journal")
    server: Server = request.getfixturevalue("postgres")
    return server.url(f"study{abs(hash(tmp_path))}")


def test_two_processes_share_the_work(storage: str) -> None:
    trials = 12
    command = [sys.executable, "-c", _PROGRAM, storage, str(trials)]
    with ExitStack() as stack:
        workers = [
            stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            for _ in range(2)
        ]
        for worker in workers:
            stack.callback(worker.kill)
        answers: list[dict[str, Any]] = [json.loads(worker.communicate()[0]) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    # The last two of each confirm the winner against the start, which both do for themselves.
    trial_of = [answer["measured"][: answer["trials"]] for answer in answers]
    together = Counter(trial_of[0] + trial_of[1])
    assert max(together.values()) == 1, "nothing is measured twice"
    # Where both ask for the start at the same moment, it is left for the end.
    assert sum(together.values()) - 2 * trials in (0, 1), "each process's trials count"
    assert all(len(done) >= trials for done in trial_of)
    study = optuna.load_study(storage=shared_study._storage(storage), study_name="shared")
    complete = [t for t in study.get_trials() if t.state == optuna.trial.TrialState.COMPLETE]
    assert {t.user_attrs["partitioning"] for t in complete} == set(together)
    # A third one begins where they ended.
    graph, start, candidates = problem()
    clock = Clock()
    refine(graph, start, candidates, clock, 3, storage, "shared")
    assert not set(clock.texts[:3]) & set(together)


def test_who_was_killed_does_not_hold_a_partitioning_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = DataflowGraph.from_uses([[], [0]])
    one, other = (SharedStudy(str(tmp_path / "j"), "s", graph, seed) for seed in (0, 1))
    assert one.claim(one.ask(), "x")
    assert other.under_way() == {"x"} and not other.claim(other.ask(), "x")
    own = other.ask()
    assert other.claim(own, "y") and other.claim(own, "z") and one.under_way() == {"x", "z"}
    other.tell(own, 1.0, "merge")
    assert not one.claim(one.ask(), "z") and one.finished() == {"z": 1.0}

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(hours=2)

    monkeypatch.setattr(shared_study, "datetime", Later)
    assert one.under_way() == set() and other.finished() == {"z": 1.0}


def test_candidates_that_only_another_machine_found_are_passed_over(tmp_path: Path) -> None:
    graph, start, candidates = problem()
    storage = str(tmp_path / "j")
    refine(graph, start, candidates, Clock(), 12, storage, "s")
    clock = Clock()
    found = refine(graph, start, [], clock, 0, storage, "s")
    assert found.key() == start.key()


def test_a_study_of_another_graph_is_refused(tmp_path: Path) -> None:
    graph, start, _ = problem()
    storage = str(tmp_path / "j")
    refine(graph, start, [], Clock(), 0, storage, "s")
    other = DataflowGraph.from_uses([[], [0]])
    with pytest.raises(SearchError, match="study 's' is of another graph"):
        SharedStudy(storage, "s", other, 0)


@pytest.mark.parametrize(
    ("storage", "said"),
    [
        ("postgresql://ann:hush@127.0.0.1:1/studies?password=hush", "of the refinement cannot be"),
        ("sqlite:////no/such/folder/hush.db", "unable to open"),
        ("/no/such/folder/refine.journal", "No such file"),
    ],
)
def test_storage_that_cannot_be_used_is_one_line_without_a_password(
    storage: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_study, "_PAUSE_SEC", 0.001)
    graph, start, _ = problem()

    def never(_: Partitioning) -> float:
        raise AssertionError("nothing is measured")

    with pytest.raises(LogError, match=said) as caught:
        refine(graph, start, [], never, 1, storage, "s")
    assert "hush" not in str(caught.value) and "\n" not in str(caught.value)
