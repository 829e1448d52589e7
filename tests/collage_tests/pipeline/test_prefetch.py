"""What is compiled in the background: once, whoever asks, and nothing of it outlives its search."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import collage
from benchmarks.gpu.cases import cases_of
from benchmarks.gpu.cases.compiling import cuda_target, partition_case
from collage.backends.compile import compile_module
from collage.backends.contract import BuildContext, ExternalBackend, TargetSet
from collage.backends.contract.errors import CompileError
from collage.backends.contract.registry import get_backend
from collage.backends.toolchain import compiling
from collage.cli import main
from collage.config import Config
from collage.cost.deadline import Deadline
from collage.cost.progress import ProgressEvent
from collage.end_to_end import taking_part
from collage.pipeline.prefetch import Prefetch, missing
from collage.targets import resolve_targets

COMPILER = """#!/bin/sh
case "$*" in *--version*) echo "slow compiler 1"; exit 0;; esac
echo run >> {folder}/runs
sleep {seconds}
exec {then} "$@"
"""

ASK = """
import json, sys
from pathlib import Path
from collage.backends.toolchain.compiling import Compilation
output, command = json.loads(sys.argv[1])
print(Compilation(Path(output), tuple(command)).run().read_bytes().hex()[:8])
"""


@pytest.fixture
def context(tmp_path: Path) -> BuildContext:
    return BuildContext(tmp_path / "cache", tmp_path / "work", num_threads=2)


def slow(context: BuildContext, folder: Path, seconds: float, then: str = "g++") -> BuildContext:
    """The same context with a compiler that counts its runs in ``runs`` and takes its time."""
    compiler = folder / "compiler"
    text = COMPILER.format(folder=folder, seconds=seconds, then=then)
    compiler.write_text(text, encoding="utf-8")
    compiler.chmod(0o755)
    return dataclasses.replace(context, cxx=str(compiler))


def runs(folder: Path) -> int:
    place = folder / "runs"
    return place.read_text(encoding="utf-8").count("run") if place.exists() else 0


def source(folder: Path) -> Path:
    path = folder / "a.c"
    path.write_text("int a = 1;", encoding="utf-8")
    return path


def openblas() -> TargetSet:
    return resolve_targets(["llvm", "openblas"])


def wait_for(folder: Path, number: int) -> None:
    deadline = time.monotonic() + 60
    while runs(folder) < number:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_processes_that_ask_at_once_compile_once(context: BuildContext, tmp_path: Path) -> None:
    wanted = compiling.cached_compilation(source(tmp_path), slow(context, tmp_path, 2.0))
    text = json.dumps([str(wanted.output), wanted.command])
    command = [sys.executable, "-c", ASK, text]
    asking = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = [process.communicate(timeout=120)[0].strip() for process in asking]
    assert answers == ["7f454c46"] * 3  # The object's first bytes.
    assert runs(tmp_path) == 1
    assert list(wanted.output.parent.iterdir()) == [wanted.output]


def test_what_a_killed_compiler_left_behind_goes(context: BuildContext, tmp_path: Path) -> None:
    wanted = compiling.cached_compilation(source(tmp_path), context)
    wanted.output.parent.mkdir(parents=True)
    leftover = wanted.output.with_name(f"{wanted.output.stem}.k1ll3d.part.o")
    other = wanted.output.with_name("another-0123.k1ll3d.part.o")
    for path in (leftover, other):
        path.write_bytes(b"half an object")
    wanted.run()
    assert set(wanted.output.parent.iterdir()) == {wanted.output, other}


def test_who_waited_for_a_compiler_that_fails_says_so_itself(
    context: BuildContext, tmp_path: Path
) -> None:
    wanted = compiling.cached_compilation(
        source(tmp_path), slow(context, tmp_path, 0.3, "g++ --no-such-flag")
    )
    text = json.dumps([str(wanted.output), wanted.command])
    other = subprocess.Popen([sys.executable, "-c", ASK, text], stderr=subprocess.PIPE, text=True)
    with pytest.raises(CompileError, match="no-such-flag"):
        wanted.run()
    assert "no-such-flag" in other.communicate(timeout=120)[1]
    assert runs(tmp_path) == 2


def test_runtimes_are_there_before_they_are_asked_for(context: BuildContext) -> None:
    wanted = missing(openblas(), context)
    assert {c.output.name.split("-")[0] for c in wanted} == {
        "openblas_runtime",
        "openblas_epilogue",
    }
    with Prefetch(openblas(), context) as prefetch:
        prefetch.wait()
        assert not prefetch.lacks(openblas())
    assert all(compilation.output.exists() for compilation in wanted)
    assert missing(openblas(), context) == []


def test_who_needs_an_object_under_way_joins_in(context: BuildContext, tmp_path: Path) -> None:
    patient = slow(context, tmp_path, 1.0)
    with Prefetch(openblas(), patient):
        wait_for(tmp_path, 2)
        for compilation in missing(openblas(), patient):
            assert compilation.run().exists()
        assert runs(tmp_path) == 2


def test_failures_wait_for_who_needs_the_object(context: BuildContext, tmp_path: Path) -> None:
    broken = slow(context, tmp_path, 0.0, "false")
    with Prefetch(openblas(), broken) as prefetch:
        prefetch.wait()
        assert runs(tmp_path) == 2
        first, _ = missing(openblas(), broken)
        with pytest.raises(CompileError, match="failed with exit status 1"):
            first.run()


def test_a_search_that_ends_does_not_wait_for_what_another_one_compiles(
    context: BuildContext, tmp_path: Path
) -> None:
    patient = slow(context, tmp_path, 20.0)
    with Prefetch(openblas(), patient):
        wait_for(tmp_path, 2)
        begin = time.monotonic()
        with Prefetch(openblas(), patient) as late:
            late.wait(Deadline.after(0.5))
            assert late.is_under_way
        assert time.monotonic() - begin < 10.0
        assert runs(tmp_path) == 2


def test_an_interrupt_leaves_no_compiler_and_no_object_behind(
    context: BuildContext, tmp_path: Path
) -> None:
    stuck = slow(context, tmp_path, 300)
    me = psutil.Process()
    with pytest.raises(KeyboardInterrupt), Prefetch(openblas(), stuck):
        wait_for(tmp_path, 2)
        deadline = time.monotonic() + 60
        left: list[psutil.Process] = []
        # Each says that it runs a moment before it sleeps.
        while len(left) < 2:
            assert time.monotonic() < deadline
            left = [p for p in me.children(recursive=True) if p.name() in ("sleep", "sh")]
        begin = time.monotonic()
        raise KeyboardInterrupt
    assert time.monotonic() - begin < 30
    _, alive = psutil.wait_procs(left, timeout=10)
    assert alive == []
    assert list((context.cache_dir / "objects").iterdir()) == []


def test_a_strategy_prepares_only_what_it_uses() -> None:
    targets = openblas()
    assert taking_part("search", targets) == taking_part("greedy", targets) == list(targets)
    assert [t.backend for t in taking_part("single:openblas", targets)] == ["openblas"]
    assert [t.backend for t in taking_part("single:tvm", targets)] == ["tvm"]


@pytest.mark.cuda
@pytest.mark.parametrize("family", ["cublas", "cutlass_norm", "cudnn"])
def test_what_is_compiled_ahead_is_what_libraries_take_in(family: str, tmp_path: Path) -> None:
    case = next(iter(cases_of(family).values()))
    made = partition_case(case, cuda_target())
    # The shared cache: a runtime takes minutes.
    context = BuildContext(Config.from_environment().cache_dir, tmp_path / "work")
    compile_module(made.module, made.targets, tmp_path / "model.so", context)
    backend = get_backend(made.targets[-1].backend)
    assert isinstance(backend, ExternalBackend) and backend.compilations(made.targets[-1], context)
    assert missing(made.targets, context) == []


def test_what_was_compiled_ahead_no_search_compiles(
    context: BuildContext, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLLAGE_CACHE_DIR", str(context.cache_dir))
    events: list[ProgressEvent] = []
    made = collage.precompile(["llvm", "openblas"], progress=events.append)
    assert made and all(path.is_file() for path in made)
    assert (events[0].done, events[-1].done) == (0, len(made)) == (0, events[-1].total)
    assert missing(openblas(), context) == []
    assert main(["precompile", "-t", "openblas"]) == 0
    assert capsys.readouterr().out == "nothing to compile: it is all there\n"


def test_who_compiles_ahead_is_told_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLLAGE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", slow(BuildContext(tmp_path, tmp_path), tmp_path, 0, "false").cxx)
    assert main(["precompile", "-t", "openblas"]) == 1
    assert "failed with exit status 1" in capsys.readouterr().err
