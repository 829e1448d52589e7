"""What backends find out, in a log that is a database: as in a file, and no password leaves it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import LogError, ProtocolError
from collage.backends.storage import CACHE_FILE, TuningRecord, TuningStore
from collage.cost.base import CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.database import open_database
from collage.cost.engines.findings import FarFindings, HeadFindings
from collage.cost.measure.builder import BuildJob, BuildResult
from collage.cost.measure.local_builder import LocalBuilder
from collage.cost.processes.described import TargetMessage
from collage.cost.processes.messages import Tune
from collage.cost.processes.protocol import decode, encode
from tests.cost_tests.conftest import ToyTarget, toy_workload
from tests.postgres import PASSWORD, USER, Server

H100 = {"name": "NVIDIA H100", "compute_capability": 90}
H200 = {"name": "NVIDIA H200", "compute_capability": 90}


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a log that is there; of a server with a password."""
    if request.param == "sqlite":
        made = f"sqlite:///{tmp_path / 'team.db'}"
    else:
        server: Server = request.getfixturevalue("postgres")
        name = f"findings{abs(hash(tmp_path))}"
        made = server.url(name, f"{USER}:{quote(PASSWORD, safe='')}")
        with server.connection() as connection:
            connection.execute(f'ALTER SCHEMA "{name}" OWNER TO {USER}')
    open_database(made)
    return made


def store(url: str, folder: Path, *, replay: bool = False) -> TuningStore:
    return TuningStore("toy", 1, folder / CACHE_FILE, url, replay=replay)


def test_findings_are_those_that_a_file_would_give(url: str, tmp_path: Path) -> None:
    first, other = store(url, tmp_path / "a"), store(url, tmp_path / "b")
    first.append({"n": 1}, H100, {"best": 1})
    first.append({"n": 1}, H200, {"best": 2})
    other.append({"n": 1}, H100, {"best": 3})
    for one in (first, other, store(url, tmp_path / "new", replay=True)):
        found = [one.find({"n": 1}, {"name": name}) for name in (H100["name"], H200["name"], "X")]
        assert [f.result["best"] if f else None for f in found] == [3, 2, None]
        assert one.find({"n": 2}, {}) is None and one.device_elsewhere(90) == H100
        assert one.device_elsewhere(80) is None
    assert TuningStore("toy", 2, tmp_path / "c", url).find({"n": 1}, {}) is None
    assert [f.result["best"] for f in open_database(url).findings()] == [3, 2]


def test_builders_elsewhere_are_told_what_they_must_know_and_bring_what_they_found(
    context: BuildContext, url: str, tmp_path: Path
) -> None:
    """They never get the URL: what they find goes through the search."""
    far = FarFindings(tmp_path / "far.jsonl")
    there = TuningStore("toy", 1, tmp_path / "far" / CACHE_FILE, tmp_path / "far.jsonl")
    there.append({"n": 1}, H100, {"plan": there.keep(b"plan")})
    head = HeadFindings(replace(context, tuning_database=url, cache_dir=tmp_path / "head"))
    head.take(far.news())
    assert [found.key for found in open_database(url).findings()] == [{"n": 1}]
    other = FarFindings(tmp_path / "other.jsonl")
    head.refresh()
    lines = head.of("toy", told=())
    assert head.of("toy", told=lines) == []
    other.take(lines)
    again = TuningStore("toy", 1, tmp_path / "other" / CACHE_FILE, tmp_path / "other.jsonl")
    found = again.find({"n": 1}, H100)
    assert found is not None and again.blob(found.blob("plan")) == b"plan"
    assert head.of("another", told=()) == []


def test_bytes_of_findings_come_back(url: str, tmp_path: Path) -> None:
    first = store(url, tmp_path / "a")
    plan, large = b"plan \x00\xff" * 1000, b"only in the cache"
    for _ in range(2):
        result = {"plan": first.keep(plan), "engine": first.keep(large, in_log=False)}
        first.append({"n": 1}, H100, result)
    replay = store(url, tmp_path / "elsewhere", replay=True)
    found = replay.find({"n": 1}, H100)
    assert found is not None and replay.blob(found.blob("plan")) == plan
    assert replay.blob(found.blob("engine")) is None
    assert len(list(open_database(url).blobs())) == 1, "once for all who refer to them"
    with pytest.raises(LogError, match="finds nothing new"):
        replay.append({"n": 2}, H100, {})


def test_what_only_the_cache_knows_is_added(url: str, tmp_path: Path) -> None:
    alone = TuningStore("toy", 1, tmp_path / CACHE_FILE)
    alone.append({"n": 1}, H100, {"plan": alone.keep(b"plan")})
    assert store(url, tmp_path).find({"n": 1}, {}) is not None
    far = store(url, tmp_path / "far", replay=True)
    found = far.find({"n": 1}, {})
    assert found is not None and far.blob(found.blob("plan")) == b"plan"
    assert list(open_database(url).findings()) == [
        TuningRecord("toy", 1, {"n": 1}, H100, found.result)
    ]


def test_worker_processes_tune_into_the_database_and_their_command_lines_hold_no_password(
    context: BuildContext, config: MeasureConfig, toy: ToyTarget, url: str, tmp_path: Path
) -> None:
    shown: list[str] = []

    def build(name: str, shape: int, *, replay: bool) -> BuildResult:
        own = replace(context, cache_dir=tmp_path / name, tuning_database=url, replay=replay)
        job = BuildJob(toy_workload(3, shape), toy(build="tune"), tmp_path / f"{name}-build")
        plugins = ["tests.cost_tests.toy_backend:ToyBackend"]
        with LocalBuilder(own, config, plugins, parallel=1) as builder:
            (result,) = builder.build([job])
            for child in psutil.Process().children():
                # Those of the last builder may be about to go.
                with suppress(psutil.NoSuchProcess):
                    if "collage.cost.worker.main" in " ".join(child.cmdline()):
                        shown.append(f"{child.cmdline()} {child.environ()}")
        return result

    missed = build("strict", 5, replay=True)
    assert missed.status is CostStatus.BUILD_FAILED and "toy's tuning of relu" in missed.reason
    assert build("first", 5, replay=False).status is CostStatus.VALID
    (finding,) = open_database(url).findings()
    assert (finding.backend, finding.result) == ("toy", {"unroll": 4})
    assert build("third", 7, replay=True).status is CostStatus.VALID
    assert len(shown) >= 3 and not any("hush" in text or "team.db" in text for text in shown)


def test_a_context_crosses_to_workers_whole_and_shows_no_password(context: BuildContext) -> None:
    own = replace(context, tuning_database="postgresql://ann:hush@db/x")
    assert "hush" not in repr(own)
    request = Tune((), TargetMessage("tvm", {}, "llvm"), own, 0)
    assert b"hush" in encode(request)
    assert decode(encode(request), Tune).context == own


def test_a_message_that_cannot_be_read_is_shown_without_passwords(context: BuildContext) -> None:
    own = replace(context, tuning_database="postgresql://ann:hush@db/x?password=hush")
    torn = encode(Tune((), TargetMessage("tvm", {}, "llvm"), own, 0)).replace(b"seed", b"sead")
    start = torn.index(b'"tuning_database"')
    for line in (torn, torn[start:], b'{"a": "postgresql://ann:hush@db'):
        with pytest.raises(ProtocolError) as caught:
            decode(line, Tune)
        assert "hush" not in str(caught.value)
