"""Whatever ends on a cluster ends nothing else: real processes are killed, stopped and added."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import TargetError
from collage.cost.base import CostStatus
from collage.cost.database.jsonl import JsonLinesDatabase
from collage.cost.device import CPU_POLICY
from collage.cost.engines.ray import RayEngine
from collage.cost.engines.ray.member import announcement
from collage.cost.measure.engine import Work
from collage.cost.measure.runner import RunJob
from collage.cost.models import MeasuredCostModel
from collage.cost.progress import ProgressEvent
from collage.testing.fixtures.engine_fixtures import CONFIG, PLUGINS, build_job
from collage.testing.fixtures.misbehaving import misbehaving_target, misbehaving_workload
from collage.testing.fixtures.ray_cluster import LoopbackCluster

pytestmark = [pytest.mark.fleet, pytest.mark.slow]

PATIENCE_SEC = 10.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackCluster]:
    """With one node that stays; each test brings its own besides."""
    with LoopbackCluster(tmp_path_factory.mktemp("ray")) as cluster:
        cluster.add("steady")
        yield cluster


@pytest.fixture
def context(tmp_path: Path) -> BuildContext:
    (tmp_path / "work").mkdir()
    return BuildContext(tmp_path / "cache", tmp_path / "work", num_threads=1)


def _search(
    cluster: LoopbackCluster,
    context: BuildContext,
    count: int,
    at: Mapping[int, Callable[[], object]],
) -> Path:
    """Measure so many candidates, each a few milliseconds long; at some, something happens.

    All must come out right, each once, and no failure of a machine as one of a candidate.
    """
    log = context.work_dir.parent / "log.jsonl"
    happened: list[int] = []

    def progress(event: ProgressEvent) -> None:
        if event.stage == "measure" and event.done in at and event.done not in happened:
            happened.append(event.done)
            threading.Thread(target=at[event.done]).start()

    workloads = [misbehaving_workload(n + 1, 64) for n in range(count)]
    targets = [misbehaving_target("sleep" if n % 2 else "right") for n in range(count)]
    # Small batches, so that there are several: what joins is there for the next one at the latest.
    config = replace(CONFIG, build_timeout_sec=60.0, run_timeout_sec=30.0)
    engine = RayEngine(cluster.address, patience_sec=PATIENCE_SEC)
    with MeasuredCostModel(
        context, JsonLinesDatabase(log), config, engine=engine, progress=progress, plugins=PLUGINS
    ) as model:
        costs = model.estimate(workloads, targets)
    assert happened == sorted(at)
    assert [cost.reason for cost in costs if cost.status is not CostStatus.VALID] == []
    for n, cost in enumerate(costs):
        assert (cost.median_sec >= 2e-3) == bool(n % 2)
    records = list(JsonLinesDatabase(log, read_only=True).records())
    assert len(records) == count == len({record.key for record in records})
    lines = [line for line in log.read_text().splitlines() if line.strip()]
    assert len(lines) == count, "nothing twice"
    return log


def test_killed_actors_and_nodes_lose_nothing(
    cluster: LoopbackCluster, context: BuildContext
) -> None:
    cluster.add("mortal")
    children: list[psutil.Process] = []
    killed = threading.Event()

    def kill_actors() -> None:
        """Of the node that stays, with what they are at; their processes must go with them."""
        for actor in cluster.actors("steady"):
            children.extend(actor.children(recursive=True))
            actor.kill()
        killed.set()

    def kill_node() -> None:
        """Not so soon that it takes the same candidate along: that would be set aside."""
        killed.wait(60.0)
        time.sleep(5.0)
        cluster.kill_node("mortal")

    raylet = cluster.node("mortal")
    _search(cluster, context, 30, {3: kill_actors, 9: kill_node})
    assert children and cluster.wait_until_ended([*children, *raylet], 60.0)


def test_killed_workers_of_actors_lose_nothing(
    cluster: LoopbackCluster, context: BuildContext
) -> None:
    """What compiles and times below the actors, three times each."""
    killed = Counter[str]()

    def kill_workers() -> None:
        for _ in range(3):
            for actor in cluster.actors("steady"):
                for child in actor.children(recursive=True):
                    with contextlib.suppress(psutil.Error):
                        if "child_boot" in " ".join(child.cmdline()):
                            child.kill()
                            killed["workers"] += 1
            time.sleep(1.0)

    _search(cluster, context, 30, {3: kill_workers})
    assert killed["workers"] >= 3


def test_a_node_that_hangs_is_left_out_and_one_that_joins_is_taken_in(
    cluster: LoopbackCluster, context: BuildContext
) -> None:
    cluster.add("hanging")
    joined: list[str] = []

    def stop() -> None:
        cluster.signal_node("hanging", signal.SIGSTOP)
        cluster.add("late")

    def look() -> None:
        end = time.monotonic() + 60
        while not cluster.actors("late") and time.monotonic() < end:
            time.sleep(0.2)
        joined.extend(actor.name() for actor in cluster.actors("late"))

    try:
        _search(cluster, context, 40, {3: stop, 16: look})
        assert joined
    finally:
        for process in cluster.node("hanging"):
            process.kill()
        cluster.kill_node("late")


def test_nothing_is_left_of_an_actor_that_was_killed(
    cluster: LoopbackCluster, context: BuildContext
) -> None:
    """Ray ends actors with SIGKILL; what they started must not outlive them."""
    engine = RayEngine(cluster.address, patience_sec=PATIENCE_SEC)
    with engine.open(Work(CPU_POLICY, context, CONFIG)) as workers:
        job = build_job(context.work_dir / "job")
        with workers.builder(PLUGINS) as builder:
            assert builder.build([job])[0].status is CostStatus.VALID
            for place in workers.places:
                assert place.runner.run(RunJob.in_folder(job.folder)).cost.is_valid
            actors = cluster.actors()
            started = [child for one in actors for child in one.children(recursive=True)]
            assert len(actors) >= 2 and len(started) >= 2
            for actor in actors:
                actor.kill()
            assert cluster.wait_until_ended([*actors, *started], 30.0)
            assert builder.build([job])[0].status is CostStatus.VALID


def test_nodes_that_do_not_fit_are_left_out_with_the_reason(
    cluster: LoopbackCluster, tmp_path: Path
) -> None:
    (tmp_path / "collage").mkdir()
    (tmp_path / "collage" / "__init__.py").write_text("raise ImportError('no such package')")
    cluster.add("empty", environment={"PYTHONPATH": str(tmp_path)})
    cluster.add("smaller", prefix=["taskset", "-c", "0"])
    try:
        found = {info.name: info for info in RayEngine(cluster.client_address).inspect(CPU_POLICY)}
    finally:
        for name in ("empty", "smaller"):
            cluster.kill_node(name)
    assert found.keys() == {"head cpu", "steady cpu", "empty", "smaller cpu"}
    assert found["steady cpu"].usable and found["steady cpu"].address.startswith("127.0.0.")
    assert found["steady cpu"].device == CPU_POLICY.detect()
    assert "no cores" in found["head cpu"].reason
    assert "no such package" in found["empty"].reason
    assert "cores 1 and not" in found["smaller cpu"].reason
    assert all("\n" not in info.reason for info in found.values())


def test_where_nodes_announce_their_device_only_those_time(
    cluster: LoopbackCluster, context: BuildContext
) -> None:
    resource = announcement(CPU_POLICY.detect())
    cluster.add("announced", resources=f'{{"{resource}": 1}}')
    try:
        with RayEngine(cluster.address).open(Work(CPU_POLICY, context, CONFIG)) as workers:
            assert [place.name for place in workers.places] == ["announced cpu"]
    finally:
        cluster.kill_node("announced")


def test_a_cluster_that_is_of_no_use_is_let_go(cluster: LoopbackCluster) -> None:
    """Who opens another one afterwards is not told to be in this one."""
    context = BuildContext(Path("cache"), Path("work"), cxx="true")
    with pytest.raises(TargetError, match="other versions: "):
        RayEngine(cluster.address).open(Work(CPU_POLICY, context, CONFIG))
    assert RayEngine(cluster.client_address).inspect(CPU_POLICY)


def test_a_client_elsewhere_builds_and_times(
    cluster: LoopbackCluster, context: BuildContext
) -> None:
    """By way of Ray's client, which is no node of the cluster."""
    with RayEngine(cluster.client_address).open(Work(CPU_POLICY, context, CONFIG)) as workers:
        job = build_job(context.work_dir / "job")
        with workers.builder(PLUGINS) as builder:
            assert builder.build([job])[0].status is CostStatus.VALID
        assert workers.places[0].runner.run(RunJob.in_folder(job.folder)).cost.is_valid
