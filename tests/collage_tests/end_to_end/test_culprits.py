"""A whole model that is wrong although its parts passed: the part is found and searched around."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import collage
from collage.backends.contract.registry import backend_names, register_backend
from collage.cost.database import JsonLinesDatabase
from collage.cost.progress import ProgressEvent
from collage.cost.reference import distance, evaluate
from collage.testing import graph
from collage.testing.fixtures.misbehaving import MisbehavingBackend

RNG = np.random.default_rng(8)


@pytest.fixture(autouse=True)
def registered() -> None:
    if MisbehavingBackend.name not in backend_names():
        register_backend(MisbehavingBackend())


def weight(*shape: int, scale: float = 1.0) -> relax.Expr:
    return relax.const((RNG.standard_normal(shape) * scale).astype("float32"))


@pytest.fixture(scope="module")
def network() -> tvm.IRModule:
    """Three activations; only what reaches the second one is large."""

    def body(emit: object, x: relax.Expr) -> relax.Expr:
        x = emit(op.nn.relu(emit(op.matmul(x, weight(16, 24)))))
        x = emit(op.nn.relu(emit(op.matmul(x, weight(24, 32, scale=9.0)))))
        x = emit(op.matmul(x, weight(32, 8, scale=1e-3)))
        return op.nn.relu(x)

    return graph([(4, 16)], body)


def optimize(
    mod: tvm.IRModule, behaviour: str, log: Path, events: list[ProgressEvent], **options: object
) -> collage.Result:
    target = {"kind": "misbehaving", "behaviour": behaviour}
    return collage.optimize(
        *(mod, ["llvm", target]), log=log, num_threads=1, progress=events.append, **options
    )


def check(result: collage.Result, mod: tvm.IRModule, folder: Path) -> None:
    x = RNG.standard_normal((4, 16)).astype("float32")
    got = collage.load(result.export(folder))(x)
    assert distance(np.asarray(got), evaluate(mod, [x])[0]).largest < 1e-4


def culprits(events: list[ProgressEvent]) -> list[str]:
    return [e.message for e in events if e.stage == "culprit" and "looking" not in e.message]


def test_a_partition_that_is_wrong_on_real_data_only_is_named_and_replaced(
    network: tvm.IRModule, tmp_path: Path
) -> None:
    log, events = tmp_path / "log.jsonl", []
    result = optimize(network, "wrong beyond 50", log, events, strategy="single:misbehaving")
    (said,) = culprits(events)
    assert said.startswith("nn.relu on misbehaving: output 0 is off by")
    kept = [c for c in result.partitioning.candidates if c.backend == "misbehaving"]
    assert len(kept) == 2, "the other two are right"
    check(result, network, tmp_path / "bundle")
    # The log knows: a replay comes to the same without running anything.
    wrong = [r for r in JsonLinesDatabase(log).records() if r.cost.status.value == "wrong_result"]
    assert any("nn.relu on misbehaving" in record.cost.reason for record in wrong)
    again = optimize(
        network, "wrong beyond 50", log, [], strategy="single:misbehaving", replay=True
    )
    assert again.module.script() == result.module.script()


def test_a_partition_that_is_wrong_beside_others_only_is_found_by_bisection(
    network: tvm.IRModule, tmp_path: Path
) -> None:
    log, events = tmp_path / "log.jsonl", []
    result = optimize(network, "wrong beside others", log, events, strategy="single:misbehaving")
    assert all("right alone, but with it the whole model is wrong" in s for s in culprits(events))
    assert 1 <= len(culprits(events)) <= 2
    check(result, network, tmp_path / "bundle")
    again = optimize(
        network, "wrong beside others", log, [], strategy="single:misbehaving", replay=True
    )
    assert again.module.script() == result.module.script()


SLOW = [
    pytest.param(behaviour, marks=pytest.mark.slow)
    for behaviour in ("right", "wrong beside others", "wrong")
]


@pytest.mark.parametrize("behaviour", ["wrong beyond 50", *SLOW])
def test_a_search_ends_with_something_right(
    network: tvm.IRModule, tmp_path: Path, behaviour: str
) -> None:
    events: list[ProgressEvent] = []
    result = optimize(network, behaviour, tmp_path / "log.jsonl", events)
    check(result, network, tmp_path / "bundle")
    assert behaviour != "right" or not culprits(events)
    again = optimize(network, behaviour, tmp_path / "log.jsonl", [], replay=True)
    assert again.module.script() == result.module.script()
