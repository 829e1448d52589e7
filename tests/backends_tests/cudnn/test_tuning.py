"""cuDNN's plans: built once, remembered, replayed; or why there is none."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import CodegenError, ReplayMissError
from collage.backends.cudnn import tuning as plans_module
from collage.backends.cudnn.codegen import Module, render_stubs, render_table
from collage.backends.cudnn.library import (
    compile_source,
    find_installation,
)
from collage.backends.cudnn.options import CudnnOptions
from collage.backends.cudnn.problem import Graph
from collage.backends.cudnn.tuning import Plan, build_plans, link_planner, run_planner
from tests.backends_tests.cudnn.support import partitions_of, residual_block

pytestmark = pytest.mark.cuda


def test_planner_links_and_finds_no_gpu(shared_context: BuildContext, tmp_path: Path) -> None:
    graphs = Module.of(partitions_of(residual_block())).graphs
    table = render_table(CudnnOptions(), graphs)
    installation = find_installation()
    runtime = compile_source("cudnn_program.cc", installation, shared_context)
    planner = link_planner(table, tmp_path, runtime, installation, shared_context)
    # No GPU is of this architecture, here or anywhere.
    assert run_planner(planner, tmp_path, 10, CudnnOptions(), len(graphs)) is False
    assert not list(tmp_path.glob("*.plan"))


@pytest.fixture
def pretend_planner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with a GPU, and a planner that writes what this folder holds."""
    planner = tmp_path / "pretend"
    planner.mkdir()
    script = planner / "planner"
    # Each of the processes that share a run plans its own graphs alone.
    script.write_text(
        f"#!/bin/sh\n[ $4 = 0 ] && echo run >> {planner}/runs\n"
        f"n=$4; while ls {planner}/$n.*; do cp {planner}/$n.* $1; n=$((n + $5)); done; exit 0\n"
    )
    script.chmod(0o755)
    monkeypatch.setattr("collage.backends.devices.cuda.device_name", lambda *_: "pretended")

    def link(table: str, *_: object) -> Path:
        (planner / "table").write_text(table)
        return script

    monkeypatch.setattr(plans_module, "link_planner", link)
    return planner


def plan(context: BuildContext, module: Module, options: CudnnOptions) -> list[Plan | None]:
    context = dataclasses.replace(context, cache_dir=context.work_dir / "plans")
    compiled = context.cache_dir / "program.o"
    compiled.parent.mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans_module, "compile_source", lambda *_: compiled)
        return build_plans(module.graphs, names_of, options, 90, find_installation(), context)


def names_of(graphs: Sequence[Graph]) -> str:
    """Stands for the table that the planner is compiled from."""
    return "\n".join(graph.name for graph in graphs)


def test_a_graph_that_cudnn_refuses_is_an_error_and_costs_no_other_its_plan(
    pretend_planner: Path, shared_context: BuildContext
) -> None:
    module = Module.of(partitions_of(residual_block()))
    first, second = module.graphs
    (pretend_planner / "0.error").write_text("no engine for that")
    (pretend_planner / "1.plan").write_bytes(b"the second's")
    (pretend_planner / "1.txt").write_text("7 engine")
    with pytest.raises(CodegenError, match=r"refuses conv\+add\+relu .*: no engine for that"):
        plan(shared_context, module, CudnnOptions())
    (pretend_planner / "0.error").unlink()
    for path in pretend_planner.glob("1.*"):
        path.rename(path.with_name(f"0{path.suffix}"))
    (pretend_planner / "0.plan").write_bytes(b"the first's")
    assert plan(shared_context, module, CudnnOptions()) == [
        Plan(b"the first's", 7, "engine"),
        Plan(b"the second's", 7, "engine"),
    ]
    assert (pretend_planner / "table").read_text() == first.name, "the other was not asked again"
    assert first.name != second.name


def test_plans_are_built_once_per_graph_and_option(
    pretend_planner: Path, shared_context: BuildContext
) -> None:
    module = Module.of(partitions_of(residual_block()))
    for index in range(2):
        (pretend_planner / f"{index}.plan").write_bytes(b"plan %d" % index)
        (pretend_planner / f"{index}.txt").write_text(f"{index * 10} engine {index}")
    first = plan(shared_context, module, CudnnOptions())
    assert first == [Plan(b"plan 0", 0, "engine 0"), Plan(b"plan 1", 10, "engine 1")]
    assert plan(shared_context, module, CudnnOptions()) == first
    runs = pretend_planner / "runs"
    assert runs.read_text() == "run\n"
    measured = CudnnOptions(algorithm="measured")
    strict = dataclasses.replace(shared_context, replay=True)
    with pytest.raises(ReplayMissError, match=r"cudnn's tuning of conv\+add\+relu"):
        plan(strict, module, measured)
    assert runs.read_text() == "run\n"
    plan(shared_context, module, measured)
    assert runs.read_text() == "run\nrun\n"
    assert plan(strict, module, measured) == first


@pytest.mark.parametrize("algorithm", ["heuristic", "measured"])
def test_a_log_alone_replays_the_plans_with_a_gpu_and_without(
    algorithm: Literal["heuristic", "measured"],
    pretend_planner: Path,
    shared_context: BuildContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, options = Module.of(partitions_of(residual_block())), CudnnOptions(algorithm)
    for index in range(2):
        (pretend_planner / f"{index}.plan").write_bytes(b"plan %d" % index)
        (pretend_planner / f"{index}.txt").write_text(f"{index * 10} engine {index}")
    log = tmp_path / "log.jsonl"
    recording = dataclasses.replace(shared_context, tuning_log=log)
    made = plan(recording, module, options)
    before = log.read_bytes()
    elsewhere = dataclasses.replace(recording, work_dir=tmp_path / "elsewhere", replay=True)
    assert plan(elsewhere, module, options) == made
    monkeypatch.setattr("collage.backends.devices.cuda.device_name", lambda *_: None)
    assert plan(elsewhere, module, options) == made
    assert log.read_bytes() == before
    assert not (elsewhere.work_dir / "plans" / "tuning").exists()
    assert (pretend_planner / "runs").read_text() == "run\n"
    # Of what is in no log, a replay makes what takes no time; without a GPU the device will.
    unknown = dataclasses.replace(elsewhere, tuning_log=None)
    if algorithm == "measured":
        with pytest.raises(ReplayMissError, match="cudnn's tuning of"):
            plan(unknown, module, options)
    else:
        assert plan(unknown, module, options) == [None, None]
        monkeypatch.setattr("collage.backends.devices.cuda.device_name", lambda *_: "pretended")
        assert plan(unknown, module, options) == made
        assert not (elsewhere.work_dir / "plans" / "tuning").exists()


def test_a_planner_that_crashes_is_an_error(
    pretend_planner: Path, shared_context: BuildContext
) -> None:
    module = Module.of(partitions_of(residual_block()))
    (pretend_planner / "planner").write_text("#!/bin/sh\necho broken driver >&2\nexit 139\n")
    with pytest.raises(CodegenError, match="exit status 139: broken driver"):
        plan(shared_context, module, CudnnOptions())


def test_without_a_gpu_no_plan_is_built(
    monkeypatch: pytest.MonkeyPatch, shared_context: BuildContext
) -> None:
    monkeypatch.setattr("collage.backends.devices.cuda.device_name", lambda *_: None)
    module = Module.of(partitions_of(residual_block()))
    assert plan(shared_context, module, CudnnOptions()) == [None, None]
    made = render_stubs(module, [None, None], CudnnOptions())
    assert made.constants == {}
    assert "&graph_0, NULL, 0," in made.text
