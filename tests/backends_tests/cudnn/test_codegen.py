"""cuDNN's generated code: sharing, plans, and libraries that link and answer without a GPU."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.case_compile import cuda_target
from collage.backends.compile import compile_module, external_functions
from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.errors import BackendUnavailableError, CodegenError, ReplayMissError
from collage.backends.cudnn import tuning as plans_module
from collage.backends.cudnn.backend import CudnnBackend
from collage.backends.cudnn.codegen import Module, render_stubs, render_table
from collage.backends.cudnn.library import (
    HEADERS,
    SOURCES,
    TEMPLATES,
    compile_source,
    find_installation,
)
from collage.backends.cudnn.options import CudnnOptions
from collage.backends.cudnn.partition import Partition, read_partition
from collage.backends.cudnn.problem import Graph
from collage.backends.cudnn.tuning import Plan, build_plans, link_planner, run_planner
from collage.backends.link import CompiledLibrary
from collage.backends.toolchain.cuda_runtime import has_device
from collage.config import Config
from collage.passes import lower
from collage.search.dataflow import DataflowGraph
from collage.search.greedy import single_backend
from collage.testing.graphs import Emit, constant, graph

pytestmark = pytest.mark.cuda

LAYOUTS = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}


@pytest.fixture
def shared_context(tmp_path: Path) -> BuildContext:
    """A context whose cache outlives the test: the runtime takes a minute to compile."""
    return BuildContext(Config.from_environment().cache_dir, tmp_path / "work")


def targets() -> tuple[BackendTarget, ...]:
    device = cuda_target()
    native_target = BackendTarget.of("tvm", device)
    return (native_target, BackendTarget("cudnn", device, CudnnOptions()))


def partitioned(module: tvm.IRModule) -> tvm.IRModule:
    dataflow = DataflowGraph.from_function(module["main"], module)
    tvm_target, cudnn = targets()
    return lower(module, dataflow, single_backend(dataflow, cudnn, tvm_target))


def residual_block(channels: int = 16) -> tvm.IRModule:
    """Two equal convolutions with bias and ReLU, a third with the first one's result added."""
    rng = np.random.default_rng(0)

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        def convolution(y: relax.Expr) -> relax.Expr:
            w = constant(channels, 3, 3, channels, rng=rng, scale=0.1, dtype="float16")
            y = emit(op.nn.conv2d(y, w, padding=1, **LAYOUTS))
            return emit(op.add(y, constant(1, 1, 1, channels, rng=rng, dtype="float16")))

        first = emit(op.nn.relu(convolution(x)))
        second = emit(op.nn.relu(convolution(first)))
        return op.nn.relu(emit(op.add(first, convolution(second))))

    return graph([(1, 8, 8, channels)], body, "float16")


def partitions_of(module: tvm.IRModule) -> list[Partition]:
    functions = external_functions(partitioned(module), CudnnBackend())
    return [read_partition(function, CudnnOptions(), 90) for function in functions]


def test_equal_partitions_share_one_graph() -> None:
    module = Module.of(partitions_of(residual_block()))
    assert len(module.sites) == 3
    assert len(module.graphs) == 2
    shared = [graph for _, graph in module.sites]
    assert sorted(shared.count(index) for index in range(2)) == [1, 2]


def test_slots_follow_roles_not_argument_order() -> None:
    """The residual is the third operand of the graph, wherever the function takes it."""
    (with_residual,) = [p for p in partitions_of(residual_block()) if p.graph.num_slots == 5]
    # Inputs are numbered by first use: the residual before what the last addition adds it to.
    x, weights, bias, residual, output = with_residual.arguments
    assert output == 4 == with_residual.num_arguments - 1
    assert {weights, bias} == {2, 3}, "constants come last"
    assert {x, residual} == {0, 1}


def test_stubs_share_a_plan_and_reserve_the_largest_workspace() -> None:
    module = Module.of(partitions_of(residual_block()))
    plans = [Plan(b"first", 100, "engine"), Plan(b"second plan", 3000, "engine")]
    made = render_stubs(module, plans, CudnnOptions(workspace_limit=5))
    text, constants = made.text, made.constants
    assert sorted(map(bytes, constants.values())) == [b"first", b"second plan"]
    assert text.count("static collage_cudnn_shared") == 2
    assert text.count("COLLAGE_EXPORT(") == 3
    assert "collage_cudnn_reserve_workspace(3000)" in text
    assert all(f"extern const unsigned char {symbol}[]" in text for symbol in constants)


def test_options_reach_the_graphs() -> None:
    graphs = Module.of(partitions_of(residual_block())).graphs
    options = CudnnOptions(workspace_limit=12345, allow_tf32=True, split_unsupported=False)
    text = render_table(options, graphs)
    assert text.count("12345, 1,\n  0,") == len(graphs)


def test_inline_constants_are_refused_with_a_reason() -> None:
    mod = partitioned(residual_block())
    function = next(f for f in mod.functions.values() if f.attrs and "Codegen" in f.attrs)
    with pytest.raises(CodegenError, match="is a constant, not an argument"):
        read_partition(function, CudnnOptions(), 90)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> CompiledLibrary:
    folder = tmp_path_factory.mktemp("cudnn")
    context = BuildContext(Config.from_environment().cache_dir, folder / "work")
    mod = partitioned(residual_block())
    return compile_module(mod, targets(), folder / "model.so", context)


def test_library_needs_cudnn_and_exports_its_entries(library: CompiledLibrary) -> None:
    dynamic = subprocess.run(
        ["readelf", "-d", library.path], capture_output=True, text=True, check=True
    ).stdout
    assert "Shared library: [libcudnn.so.9]" in dynamic
    assert "nvrtc" not in dynamic and "libcuda.so" not in dynamic
    need = next(need for need in library.required if need.soname == "libcudnn.so.9")
    assert need.package == "nvidia-cudnn-cu13"
    assert need.version.startswith("9.")
    assert (need.path.parent / "libcudnn_graph.so.9").is_file(), "its parts lie beside it"
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", library.path], capture_output=True, text=True, check=True
    ).stdout
    assert {f"__tvm_ffi_cudnn_{n}" for n in range(3)} <= set(symbols.split())
    assert "collage_cudnn_call" not in symbols.split(), "the runtime stays inside"


CPU, CUDA = 1, 2


def call_entry(library: CompiledLibrary, device_type: int, num_arguments: int = 4) -> str:
    """The error of the first entry, called in a process of its own."""
    script = Path(__file__).with_name("call.py")
    needs = [str(need.path) for need in library.required]
    arguments = [str(library.path), str(device_type), str(num_arguments), *needs]
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_tensors_in_host_memory_are_refused(library: CompiledLibrary) -> None:
    message = call_entry(library, CPU)
    assert "TypeError argument 0 is not in the memory of a CUDA device" in message


def test_wrong_number_of_arguments_is_named(library: CompiledLibrary) -> None:
    assert "TypeError cudnn_0: expected 4 arguments, got 3" in call_entry(library, CUDA, 3)


@pytest.mark.skipif(has_device(), reason="what happens without a GPU")
def test_running_without_a_gpu_says_what_failed(library: CompiledLibrary) -> None:
    message = call_entry(library, CUDA)
    assert "RuntimeError cudnn_0 (cuDNN conv+add+relu float16 1x16x8x8" in message
    assert "cudaGetDevice: " in message


def test_runtime_is_compiled_once(library: CompiledLibrary, shared_context: BuildContext) -> None:
    installation = find_installation()
    objects = [compile_source(name, installation, shared_context) for name in SOURCES]
    times = [path.stat().st_mtime_ns for path in objects]
    again = [compile_source(name, installation, shared_context) for name in SOURCES]
    assert again == objects
    assert [path.stat().st_mtime_ns for path in again] == times


def test_every_header_counts_for_the_cache() -> None:
    """A change of any file in the templates that the runtime includes must recompile it."""
    assert {path.name for path in TEMPLATES.glob("*.h")} == set(HEADERS)


def test_planner_links_and_finds_no_gpu(shared_context: BuildContext, tmp_path: Path) -> None:
    graphs = Module.of(partitions_of(residual_block())).graphs
    table = render_table(CudnnOptions(), graphs)
    installation = find_installation()
    runtime = compile_source("cudnn_program.cc", installation, shared_context)
    planner = link_planner(table, tmp_path, runtime, installation, shared_context)
    # No GPU is of this architecture, here or anywhere.
    assert run_planner(planner, tmp_path, 10, CudnnOptions()) is False
    assert not list(tmp_path.glob("*.plan"))


@pytest.fixture
def pretend_planner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with a GPU, and a planner that writes what this folder holds."""
    planner = tmp_path / "pretend"
    planner.mkdir()
    script = planner / "planner"
    script.write_text(f'#!/bin/sh\necho run >> {planner}/runs\ncp {planner}/[0-9].* "$1"\n')
    script.chmod(0o755)
    monkeypatch.setattr(plans_module, "device_name", lambda _: "pretended")

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
    monkeypatch.setattr(plans_module, "device_name", lambda _: None)
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
        monkeypatch.setattr(plans_module, "device_name", lambda _: "pretended")
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
    monkeypatch.setattr(plans_module, "device_name", lambda _: None)
    module = Module.of(partitions_of(residual_block()))
    assert plan(shared_context, module, CudnnOptions()) == [None, None]
    made = render_stubs(module, [None, None], CudnnOptions())
    assert made.constants == {}
    assert "&graph_0, NULL, 0," in made.text


def test_probe_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = CudnnBackend().probe()
    assert found.usable
    assert {"cudnn", "cudnn_frontend", "cudart"} <= set(found.versions)
    monkeypatch.setattr(
        "collage.backends.cudnn.library.cuda_toolkit.find_header_dir", lambda _: None
    )
    missing = CudnnBackend().probe()
    assert not missing.usable
    assert missing.reason == "cudnn.h, cudnn_frontend.h, nvrtc.h not found"
    assert missing.remedy.startswith("pip install")
    with pytest.raises(BackendUnavailableError):
        find_installation()
