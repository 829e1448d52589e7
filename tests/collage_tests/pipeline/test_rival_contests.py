"""What decides is timed together: an answer does not rest on who met a lucky moment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import collage
from benchmarks.rival_contests import Net, least_seconds, network, regrets
from collage.cost.deadline import NEVER
from collage.cost.measure.replay import MeasureStats
from collage.pipeline import rival_contests
from collage.testing import graph


def _chain() -> tvm.IRModule:
    weights = [
        relax.const(np.random.default_rng(n).normal(size=(48, 48)).astype("float32"))
        for n in range(3)
    ]

    def build(emit, x):  # type: ignore[no-untyped-def]
        for weight in weights:
            x = emit(op.nn.softmax(emit(op.matmul(x, weight))))
        return x

    return graph([(32, 48)], build)


@pytest.fixture(scope="module")
def net() -> Net:
    return network(layers=5)


def test_beside_a_load_that_comes_and_goes_the_answer_is_better(net: Net) -> None:
    least = least_seconds(net, 5)
    without, _ = regrets(net, least, share=0.4, burst_sec=1.0, together=False)
    together, _ = regrets(net, least, share=0.4, burst_sec=1.0, together=True)
    assert np.mean(without) > 0.01  # Else nothing is shown.
    assert np.mean(together) < 0.25 * np.mean(without)


def test_on_a_quiet_machine_it_takes_little(net: Net) -> None:
    found, took = regrets(net, least_seconds(net, 3), share=0.0, burst_sec=1.0, together=True)
    assert max(found) <= 0.02 * 1.5  # Ties.
    assert took < 0.15


def test_with_its_log_a_search_that_had_no_time_for_more_contests_holds_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run had time again, measured on, and could give another answer."""
    mod, log = _chain(), tmp_path / "log.jsonl"
    options = {"log": log, "num_threads": 1}
    with monkeypatch.context() as hurried:
        hurried.setattr(rival_contests, "_LEAST_SEC", 1e-3)
        hurried.setattr(rival_contests, "_SHARE", 0.0)
        made = collage.optimize(mod, ["llvm", "openblas"], **options)
    lines = log.read_text()
    again = collage.optimize(mod, ["llvm", "openblas"], **options)
    assert '"kind": "together"' in lines and log.read_text() == lines
    assert again.report.search.measured == 0
    assert again.module.script() == made.module.script()


def test_what_the_log_has_of_contests_is_all_where_nothing_is_measured() -> None:
    nothing, some = MeasureStats(from_log=300), MeasureStats(measured=1, seconds_measuring=100.0)
    assert rival_contests.patience_sec(nothing, NEVER, 1) == 0.0
    # Logs of earlier releases have none.
    assert rival_contests.patience_sec(nothing, NEVER, 0) == 3.0
    assert rival_contests.patience_sec(some, NEVER, 1) == 10.0


def test_a_replay_takes_the_contests_from_the_log(tmp_path: Path) -> None:
    mod, log = _chain(), tmp_path / "log.jsonl"
    events = []
    made = collage.optimize(
        mod, ["llvm", "openblas"], log=log, num_threads=1, progress=events.append
    )
    lines = log.read_text()
    again = collage.optimize(mod, ["llvm", "openblas"], log=log, num_threads=1, replay=True)
    assert '"kind": "together"' in lines
    assert any("timed again together" in remark for remark in made.report.remarks)
    assert again.report.remarks == made.report.remarks
    assert again.module.script() == made.module.script()
    assert again.report.search.measured == 0
    assert log.read_text() == lines
