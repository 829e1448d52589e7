"""``collage workers``: who could measure, and why one cannot be used."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from collage.cli import main
from collage.cli._workers import versions_of
from collage.cost.device import CPU_POLICY
from collage.cost.measure.engine import WorkerInfo

_ENGINE = """
from collage.backends.contract.errors import MeasurementError
from collage.cost.device import CPU_POLICY, Device
from collage.cost.measure.engine import Engine, WorkerInfo

class Pool(Engine):
    def open(self, work):
        raise NotImplementedError

    def inspect(self, policy):
        if policy is CPU_POLICY:
            return []
        gpu = Device("cuda", "NVIDIA H100", 132, "sm_90", "580.65.06, CUDA 13.0", 81559)
        versions = {"tvm": "0.27.0", "python": "3.11"}
        return [
            WorkerInfo("a cuda:0", "10.0.0.3", gpu, versions, 0.25, 14),
            WorkerInfo("b cuda:0", "10.0.0.4", gpu, versions | {"tvm": "0.26.0"}, 3.5, 14,
                       "it has TVM 0.26.0, this machine 0.27.0"),
            WorkerInfo("c", "10.0.0.5", reason="there is no CUDA device"),
        ]

def pool(url):
    if url.host == "nowhere":
        raise MeasurementError("nobody answers at nowhere", value=url.text)
    return Pool()
"""


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pool_engine.py").write_text(_ENGINE)
    info = tmp_path / "pool_engine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pool-engine\n")
    (info / "entry_points.txt").write_text("[collage.engines]\npool = pool_engine:pool\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pool_engine", raising=False)


def test_this_machine_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workers", "local", "--target", "llvm", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["workers"]
    here = CPU_POLICY.detect()
    assert row["usable"] and not row["reason"] and row["kind"] == "cpu"
    assert (row["device"]["name"], row["device"]["cores"]) == (here.name, here.cores)
    assert "tvm" in row["versions"] and row["builds"] >= 1


def test_a_table_says_what_differs_and_why_one_is_left_out(
    pool: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["workers", "pool://head"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for text in (
        "10.0.0.3 NVIDIA H100, 132 SMs, sm_90, 81559 MiB 14 0.25 yes",
        "no: it has TVM 0.26.0, this machine 0.27.0",
        "no: there is no CUDA device",
        "driver 580.65.06, CUDA 13.0",
        "everybody: python 3.11 a cuda:0: tvm 0.27.0 b cuda:0: tvm 0.26.0",
    ):
        assert text in shown


def test_as_json_it_is_the_same_and_all_of_it(
    pool: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["workers", "pool://head", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["workers"]
    assert [(row["name"], row["kind"], row["usable"]) for row in rows] == [
        ("a cuda:0", "cuda", True),
        ("b cuda:0", "cuda", False),
        ("c", "cuda", False),
    ]
    assert rows[0]["device"]["driver"] == "580.65.06, CUDA 13.0"
    assert rows[2]["device"] is None and rows[2]["load"] is None


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["workers", "pool://nowhere"], 1, "nobody answers at nowhere"),
        (["workers", "swarm://head"], 2, "there are no workers 'swarm'; known: local, ray, rpc"),
        (["workers", "--target", "vulkan"], 2, "target 'vulkan'; known targets: llvm, cuda"),
    ],
)
def test_what_is_wrong_is_one_line(
    pool: None, arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == code
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_versions_in_common_are_said_once() -> None:
    def info(name: str, **versions: str) -> WorkerInfo:
        return WorkerInfo(name, "localhost", versions=versions)

    assert versions_of([]) == versions_of([info("a")]) == []
    assert versions_of([info("a", tvm="1")]) == [("a", {"tvm": "1"})]
    assert versions_of([info("a", tvm="1"), info("b", tvm="1"), info("c")]) == [
        ("everybody", {"tvm": "1"})
    ]
    assert versions_of([info("a", tvm="1"), info("b", tvm="1", nvcc="13")]) == [
        ("everybody", {"tvm": "1"}),
        ("b", {"nvcc": "13"}),
    ]
    assert versions_of([info("a", tvm="1"), info("b", tvm="2")]) == [
        ("a", {"tvm": "1"}),
        ("b", {"tvm": "2"}),
    ]
