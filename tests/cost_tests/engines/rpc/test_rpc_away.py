"""A search whose only servers are away waits for one, says so, and does not wait forever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tvm.relax import op

import collage
from collage.backends.contract import BuildContext
from collage.backends.contract.errors import MeasurementError
from collage.cost.config import MeasureConfig
from collage.cost.database import JsonLinesDatabase
from collage.cost.device import CPU_POLICY
from collage.cost.engines.rpc.engine import RpcEngine
from collage.cost.engines.rpc.sessions import RpcOptions
from collage.cost.measure.engine import Work
from collage.cost.measure.runner import PlaceLostError, RunJob
from collage.cost.measure.whole_models.model_timer import EndToEndQuestion, WholeModel
from collage.cost.progress import ProgressEvent, ignore
from collage.cost.reference import Sample
from collage.testing import graph
from collage.testing.fixtures.rpc_fleet import RpcFleet, free_port

pytestmark = pytest.mark.fleet


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(CPU_POLICY, BuildContext(tmp_path / "cache", tmp_path / "work"), MeasureConfig())


class Restarting:
    """Kills the only server when a stage is reached, and starts another one a moment later."""

    def __init__(self, fleet: RpcFleet, stages: list[str], tracker_too: str) -> None:
        self._fleet, self._stages, self._tracker_too = fleet, stages, tracker_too
        self._timers: list[threading.Timer] = []
        self.said: list[str] = []

    def __call__(self, event: ProgressEvent) -> None:
        if event.stage == "places":
            self.said.append(event.message)
        if event.stage in self._stages:
            self._stages.remove(event.stage)
            self._fleet.kill_server(len(self._fleet.servers) - 1)
            if event.stage == self._tracker_too:
                self._fleet.end_tracker()
            self.begin(self._again)

    def begin(self, what: Callable[[], None]) -> None:
        self._timers.append(threading.Timer(3.0, what))
        self._timers[-1].start()

    def _again(self) -> None:
        self._fleet.start_tracker()
        self._fleet.start_server()

    def join(self) -> None:
        for timer in self._timers:
            timer.join()


def test_a_search_waits_for_its_only_server_whenever_it_is_away(tmp_path: Path) -> None:
    mod = graph([(32, 64), (64, 48)], lambda emit, x, w: op.tanh(emit(op.matmul(x, w))))
    log = tmp_path / "log.jsonl"
    with RpcFleet(0, "late") as fleet:
        follow = Restarting(fleet, ["measure", "end to end"], tracker_too="measure")
        follow.begin(fleet.start_server)
        try:
            result = collage.optimize(
                mod,
                ["llvm", "openblas"],
                workers=f"{fleet.url}&wait=240&patience=5",
                log=log,
                progress=follow,
            )
        finally:
            follow.join()
    waits = [text for text in follow.said if text.startswith("waiting up to 240 s for a server")]
    assert "no server of key 'late': the tracker" in waits[0] and len(waits) >= 3
    assert "there is a server of key 'late' again" in follow.said
    records = list(JsonLinesDatabase(log).records())
    assert records and all(record.cost.is_valid for record in records)
    assert len({record.key for record in records}) == len(records)
    assert all(row.median_sec for row in result.report.end_to_end)


def test_the_wait_for_a_first_server_has_an_end(work: Work) -> None:
    said: list[str] = []
    begin = time.monotonic()
    with RpcFleet(0, "never") as fleet:
        never = RpcEngine(fleet.tracker, RpcOptions(fleet.key, wait_sec=2.0))
        with pytest.raises(
            MeasurementError,
            match=f"^no server of key 'never' could be had from the tracker at "
            f"{fleet.tracker.address} within 2 s: no server of key 'never': the tracker at .* has "
            f"no servers; ",
        ):
            never.open(replace(work, say=said.append))
    assert time.monotonic() - begin > 2.0
    (told,) = said
    assert told.startswith("waiting up to 2 s for a server of key 'never' at ")


def test_a_tracker_that_never_was_there_is_named(work: Work) -> None:
    url = f"rpc://127.0.0.1:{free_port()}?key=board&wait=1"
    with pytest.raises(MeasurementError, match=r"within 1 s: no RPC tracker at 127.0.0.1:\d+: "):
        collage.optimize(graph([(8,)], lambda emit, x: op.exp(x)), workers=url)


def test_whole_models_do_not_wait_forever_either(work: Work, tmp_path: Path) -> None:
    work.context.work_dir.mkdir()
    x = np.zeros((4,), np.float32)
    model = WholeModel("key", "exp", ())
    with RpcFleet(1, "gone") as fleet:
        gone = RpcEngine(fleet.tracker, RpcOptions(fleet.key, wait_sec=2.0, patience_sec=5.0))
        with gone.open(work) as workers:
            fleet.kill_server(0)
            begin = time.monotonic()
            with pytest.raises(
                MeasurementError,
                match=f"no server of key 'gone' could be had from the tracker at "
                f"{fleet.tracker.address} within 2 s: ",
            ):
                workers.timer(ignore).measure(
                    EndToEndQuestion([model], [Sample.of([x], [np.exp(x)])]), [tmp_path / "no.so"]
                )
            assert 2.0 < time.monotonic() - begin < 60.0
            (place,) = workers.places
            with pytest.raises(PlaceLostError):
                place.runner.run(RunJob(tmp_path / "no.so", tmp_path))
            with pytest.raises(MeasurementError, match="within 2 s: all of them are away; "):
                assert not workers.places
