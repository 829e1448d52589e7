"""What a user may write for workers, and what is said of what nobody can mean."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from collage.backends.contract.errors import WorkersError
from collage.cost.engines import LocalEngine, WorkersUrl, engine_names, engine_of
from collage.cost.engines.named import extra_module

_ENGINE = """
from collage.cost.measure.engine import Engine

class Slurm(Engine):
    def __init__(self, address, queue):
        self.address, self.queue = address, queue

    def open(self, work):
        raise NotImplementedError

    def inspect(self, policy):
        return []

def slurm(url):
    return Slurm(url.address(6817), url.only("queue").get("queue", "any"))

def nothing(url):
    return None
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Installs a distribution with entry points, as pip would lay it out."""

    def install(*lines: str) -> None:
        (tmp_path / "somebodys_engine.py").write_text(_ENGINE)
        info = tmp_path / "somebodys_engine-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys-engine\n")
        text = "\n".join(["[collage.engines]", *lines])
        (info / "entry_points.txt").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "somebodys_engine", raising=False)

    return install


def test_an_address_is_taken_apart() -> None:
    url = WorkersUrl.parse("rpc://[::1]:9190?key=h100%20sxm&timeout=5")
    assert url.address() == ("::1", 9190)
    assert url.only("key", "timeout") == {"key": "h100 sxm", "timeout": "5"}
    assert WorkersUrl.parse("ray://head").address(10001) == ("head", 10001)
    assert WorkersUrl.parse("ray://head:0/").address(10001) == ("head", 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rpc://tracker:port", "malformed: Port could not be cast to integer value"),
        ("rpc://tracker:99999", "malformed: Port out of range"),
        ("rpc://[::1:9190", "malformed: Invalid IPv6 URL"),
        ("rpc://tracker:9190?key", "malformed: bad query field: 'key'"),
        ("rpc://tracker:9190?key=a&key=b", "malformed: an option is given twice"),
        ("rpc://tracker:9190/h100", "malformed: neither a path"),
        ("rpc://tracker:9190#h100", "malformed: neither a path"),
        ("local://here", "this machine has no address; write local"),
        ("local://?key=a", "have no option 'key'; known options: none"),
        ("slurm", "there are no workers 'slurm'; known: local, ray, rpc, or scheme://host:port"),
        ("", "there are no workers ''"),
        ("Ray://head", "there are no workers 'Ray'"),
        ("ray:head:10001", "there are no workers 'ray:head:10001'"),
    ],
)
def test_what_nobody_can_mean_is_one_line(text: str, message: str) -> None:
    with pytest.raises(WorkersError) as caught:
        engine_of(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_password_is_refused_and_not_repeated() -> None:
    with pytest.raises(WorkersError, match="no place in it") as caught:
        engine_of("ray://me:hunter2@head:10001")
    assert "hunter2" not in f"{caught.value} {caught.value.value}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rpc://:9190", "name no host: write rpc://host:port"),
        ("rpc://tracker", "name no port: write rpc://host:port"),
    ],
)
def test_an_address_lacks_what_it_needs(text: str, message: str) -> None:
    with pytest.raises(WorkersError, match=message):
        WorkersUrl.parse(text).address()


def test_this_machine_and_engines_themselves() -> None:
    engine = engine_of("local")
    assert isinstance(engine, LocalEngine)
    assert engine_of(engine) is engine


def test_something_else_altogether() -> None:
    with pytest.raises(WorkersError, match=r"a concurrent\.futures\.Executor, not 8"):
        engine_of(8)  # type: ignore[arg-type]


def test_an_engine_of_somebody_else(install: Any) -> None:
    install("slurm = somebodys_engine:slurm")
    assert engine_names() == ["local", "ray", "rpc", "slurm"]
    engine: Any = engine_of("slurm://head?queue=short")
    assert (engine.address, engine.queue) == (("head", 6817), "short")
    with pytest.raises(WorkersError, match="no option 'partition'; known options: queue"):
        engine_of("slurm://head?partition=short")


def test_an_engine_that_cannot_be_loaded_hurts_who_names_it_only(install: Any) -> None:
    install("slurm = somebodys_engine:missing", "none = somebodys_engine:nothing")
    assert isinstance(engine_of("local"), LocalEngine)
    with pytest.raises(WorkersError, match=r"'slurm = somebodys_engine:missing' cannot be loaded"):
        engine_of("slurm://head")
    with pytest.raises(WorkersError, match="gives no engine for 'none' but None"):
        engine_of("none")


def test_a_name_that_is_taken(install: Any) -> None:
    install("ray = somebodys_engine:slurm")
    with pytest.raises(WorkersError, match="has that name already"):
        engine_of("local")


def test_an_extra_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(WorkersError, match=r"need 'ray'.*pip install 'collage-tvm\[ray\]'"):
        extra_module("ray", "ray")


def test_a_library_that_is_installed_but_broken_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_a_library.py").write_text("import what_it_needs\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="what_it_needs"):
        extra_module("half_a_library", "ray")
