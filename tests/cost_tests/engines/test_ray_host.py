"""What an actor does on its machine, without a cluster around it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import ProtocolError
from collage.backends.storage import TuningStore, read_findings
from collage.cost.base import CostStatus
from collage.cost.device import CPU_POLICY, LocalDevice
from collage.cost.engines.findings import FarFindings, HeadFindings
from collage.cost.engines.ray.host import Host
from collage.cost.engines.ray.messages import (
    AnyReply,
    BuildOrder,
    BuildReply,
    Heartbeat,
    HostSettings,
    Order,
    OthersOrder,
    OthersReply,
    RunOrder,
    RunReply,
    TimeIsUp,
    WarmOrder,
    WorkerFailure,
)
from collage.cost.engines.shipping import pack, unpack
from collage.cost.processes.described import TargetMessage, WorkloadMessage
from collage.cost.processes.protocol import decode, encode
from collage.cost.reference import Sample
from collage.testing.fixtures.engine_fixtures import CONFIG, PLUGINS
from collage.testing.fixtures.misbehaving import misbehaving_target, misbehaving_workload
from tests.cost_tests.conftest import ToyTarget, toy_workload

MOST = 1 << 28

pytestmark = pytest.mark.fleet

TOY = ("tests.cost_tests.toy_backend:ToyBackend",)
GPU = {"name": "NVIDIA H200", "compute_capability": 90}

MakeHost = Callable[[int], Host]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[MakeHost]:
    """Makes a host that builds so many at a time, or times."""
    with contextlib.ExitStack() as stack:

        def make(builds: int) -> Host:
            device = CPU_POLICY.detect()
            settings = HostSettings("cpu", CONFIG, 1, "g++", False, False, False, builds, device)
            made = Host(encode(settings), str(tmp_path / "hosts"))
            stack.callback(made.close)
            return made

        yield make


def _here() -> LocalDevice:
    return CPU_POLICY.all_here()[0]


def _do(host: Host, number: int, order: Order, *files: bytes) -> tuple[AnyReply, list[bytes]]:
    text, *shipped = host.do(number, encode(order), *files)
    reply: AnyReply = decode(text, AnyReply)
    return reply, shipped


def _build(behaviour: str = "right", build: str = "normal", size: int = 50) -> BuildOrder:
    workload = WorkloadMessage.of(misbehaving_workload(4, size))
    target = TargetMessage.of(misbehaving_target(behaviour, build))
    return BuildOrder(workload, target, tuple(PLUGINS), ())


def test_what_one_host_builds_another_one_times(host: MakeHost, tmp_path: Path) -> None:
    """All that passes between them are bytes; what is in the way of one does not hurt the next."""
    builder, timer = host(2), host(0)
    replies: dict[int, tuple[AnyReply, list[bytes]]] = {}

    def build(number: int, order: BuildOrder) -> None:
        replies[number] = _do(builder, number, order)

    orders = [_build("right"), _build("wrong"), _build(build="die"), _build(build="refuse")]
    threads = [threading.Thread(target=build, args=one) for one in enumerate(orders)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    statuses = [replies[n][0].status for n in range(4)]  # type: ignore[union-attr]
    wanted = [CostStatus.VALID, CostStatus.VALID, CostStatus.CRASHED, CostStatus.BUILD_FAILED]
    assert statuses == wanted and [len(replies[n][1]) for n in range(4)] == [1, 1, 0, 0]
    unpack(replies[0][1][0], tmp_path / "here", MOST)
    (x,), (y,) = (sample := Sample.load(tmp_path / "here")).inputs, sample.expected
    np.testing.assert_array_equal(np.maximum(x, 0.0), y)

    assert _do(timer, 0, WarmOrder()) == (RunReply(()), [])
    assert _do(timer, 0, OthersOrder()) == (OthersReply(CPU_POLICY.others(_here())), [])
    for number, status in ((0, CostStatus.VALID), (1, CostStatus.WRONG_RESULT)):
        reply, _ = _do(timer, 1, RunOrder("model.so"), *replies[number][1])
        assert isinstance(reply, RunReply), reply
        assert [result.cost.status for result in reply.results] == [status]


def test_what_is_told_to_stop_stops_and_the_next_is_built(host: MakeHost) -> None:
    builder = host(1)
    replies: list[AnyReply] = []
    order = _build(build="hang")  # TVM builds graphs on one thread only.
    waiting = [
        threading.Thread(target=lambda n=n: replies.append(_do(builder, n, order)[0]))
        for n in range(2)
    ]
    for one in waiting:
        one.start()
    end = time.monotonic() + 60
    while time.monotonic() < end:
        heartbeat: Heartbeat = decode(builder.heartbeat(), Heartbeat)
        if len(heartbeat.working) == 2 and max(heartbeat.working.values()) > 1.0:
            break
        time.sleep(0.05)
    # The one that waits for its turn is not worked on: no limit of time is for it yet.
    assert sorted(heartbeat.working.values())[0] == 0.0
    builder.stop()
    for one in waiting:
        one.join(timeout=30)
    assert replies == [TimeIsUp(), TimeIsUp()]
    reply, _ = _do(builder, 2, _build())
    assert isinstance(reply, BuildReply) and reply.status is CostStatus.VALID


def test_what_cannot_be_read_is_no_candidates_fault(host: MakeHost) -> None:
    timer = host(0)
    assert isinstance(_do(timer, 0, RunOrder("model.so"), b"no archive")[0], WorkerFailure)
    assert isinstance(_do(timer, 1, _build())[0], WorkerFailure)
    assert isinstance(decode(timer.do(2, b"nonsense")[0], AnyReply), WorkerFailure)
    assert "ProtocolError" in timer.keep("ab12", b"no archive", MOST)
    assert timer.lacks(["ab12"]) == ["ab12"]
    assert "TargetError" in timer.keep("../ab12", b"", MOST)


def test_archives_are_kept_once(host: MakeHost, tmp_path: Path) -> None:
    timer = host(0)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.so").write_bytes(b"machine code")
    assert timer.keep("ab12", pack(tmp_path / "model", MOST), MOST) == ""
    assert timer.lacks(["ab12", "cd34"]) == ["cd34"]
    assert timer.keep("ab12", b"is not looked at again", MOST) == ""


def test_findings_come_into_the_log_and_the_log_decides(
    host: MakeHost, tmp_path: Path, toy: ToyTarget
) -> None:
    """A builder elsewhere chooses what the log says, and else says what it chose."""
    log = tmp_path / "log.jsonl"
    context = BuildContext(tmp_path / "cache", tmp_path / "work", tuning_log=log)
    head = HeadFindings(context)
    workload, target = toy_workload(8, 8), toy(build="tune")
    messages = WorkloadMessage.of(workload), TargetMessage.of(target)
    first, second = host(1), host(1)
    reply, _ = _do(first, 0, BuildOrder(*messages, TOY, tuple(head.of("toy", ()))))
    assert isinstance(reply, BuildReply) and reply.status is CostStatus.VALID, reply
    assert len(reply.findings) == 1
    head.take(reply.findings)
    head.take(reply.findings)
    assert [found.backend for found in read_findings(log)] == ["toy"]
    again, _ = _do(first, 1, BuildOrder(*messages, TOY, ()))
    assert isinstance(again, BuildReply) and again.findings == ()
    other, _ = _do(second, 0, BuildOrder(*messages, TOY, tuple(head.of("toy", ()))))
    assert isinstance(other, BuildReply) and other.findings == ()


def test_findings_cross_with_what_they_refer_to(tmp_path: Path) -> None:
    plan = np.random.default_rng().bytes(5000)
    far = tmp_path / "far.jsonl"
    store = TuningStore("mine", 1, tmp_path / "far" / "kernels.jsonl", far)
    store.append({"rows": 64}, GPU, {"plan": store.keep(plan), "algorithm": 3})
    store.append({"rows": 65}, GPU, {"algorithm": 4})
    lines = FarFindings(far).news()
    context = BuildContext(tmp_path / "c", tmp_path / "w", tuning_log=tmp_path / "log.jsonl")
    head = HeadFindings(context)
    for line in lines:  # Each in a message of its own.
        head.take([line])
    fresh = TuningStore.of("mine", 1, context)
    found = fresh.find({"rows": 64}, GPU)
    assert found is not None and fresh.blob(found.blob("plan")) == plan
    there = FarFindings(tmp_path / "there.jsonl")
    there.take(head.of("mine", ()))
    assert there.news() == [], "what came from the head does not go back"
    own = TuningStore("mine", 1, tmp_path / "t" / "k.jsonl", tmp_path / "there.jsonl")
    found = own.find({"rows": 64}, GPU)
    assert found is not None and own.blob(found.blob("plan")) == plan


@pytest.mark.parametrize(
    "line", ["", "[]", "{}", '{"kind": "tuning"}', '{"kind": "blob", "data": "!"}', '{"kind": 3}']
)
def test_no_finding_is_no_finding(line: str, tmp_path: Path) -> None:
    context = BuildContext(tmp_path / "c", tmp_path / "w", tuning_log=tmp_path / "log.jsonl")
    with pytest.raises(ProtocolError):
        HeadFindings(context).take([line])
    with pytest.raises(ProtocolError):
        FarFindings(tmp_path / "far.jsonl").take([line])
    assert not (tmp_path / "log.jsonl").exists() and not (tmp_path / "far.jsonl").exists()
