"""What decides is timed together: an answer does not rest on who met a lucky moment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

import collage
from benchmarks.rival_contests import Net, least_seconds, network, regrets
from collage.testing import graph


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


def test_a_replay_takes_the_contests_from_the_log(tmp_path: Path) -> None:
    weights = [
        relax.const(np.random.default_rng(n).normal(size=(48, 48)).astype("float32"))
        for n in range(3)
    ]

    def build(emit, x):  # type: ignore[no-untyped-def]
        for weight in weights:
            x = emit(op.nn.softmax(emit(op.matmul(x, weight))))
        return x

    mod, log = graph([(32, 48)], build), tmp_path / "log.jsonl"
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
