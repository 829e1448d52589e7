"""From a partitioned module to a library that runs elsewhere, on one thread pool."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends import compile as compile_
from collage.backends.contract import (
    PARTITION_ATTR,
    BackendTarget,
    BuildContext,
    ExternalBackend,
    registry,
)
from collage.backends.contract.errors import CodegenError, CompileError, OutputError
from collage.backends.link import CompiledLibrary, stage_libraries
from collage.backends.toolchain import compiling, openmp_pool
from collage.cost.reference import evaluate, largest_error
from collage.passes import lower
from collage.search.candidates import Candidate, Composite
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import make_partitioning
from collage.testing.backend_contract import RUNNER
from collage.testing.graphs import constant, graph
from tests.backends_tests.contract.test_registry import Recorder, fresh  # noqa: F401 -- a fixture
from tests.object_cache import cache_with_objects

WEIGHTS = np.random.default_rng(3).standard_normal((96, 96)).astype(np.float32)


def targets() -> list[BackendTarget]:
    device = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"})
    return [
        BackendTarget(name, device, registry.get_backend(name).parse_options({}))
        for name in ("tvm", "openblas")
    ]


def mixed(rows: int = 64) -> tvm.IRModule:
    """A TVM partition between two OpenBLAS partitions that share their weights."""

    def body(emit, x):  # type: ignore[no-untyped-def]
        first = emit(op.matmul(x, relax.const(WEIGHTS)))
        middle = emit(op.exp(emit(op.multiply(first, relax.const(np.float32(0.01))))))
        return op.matmul(middle, relax.const(WEIGHTS))

    return graph([(rows, 96)], body)


def partitioned(mod: tvm.IRModule) -> tvm.IRModule:
    """Every product a partition of OpenBLAS, every other operator one of TVM."""
    tvm_target, openblas = targets()
    graph = DataflowGraph.from_function(mod["main"])
    candidates = []
    for index in range(len(graph)):
        node = 1 << index
        if graph.op_name(index) == "matmul":
            composite = Composite("openblas.matmul", node)
            candidates.append(Candidate(node, openblas, (composite,)))
        else:
            candidates.append(Candidate(node, tvm_target))
    return lower(mod, graph, make_partitioning(graph, candidates))


def compile_mixed(output: Path, context: BuildContext, rows: int = 64) -> CompiledLibrary:
    return compile_.compile_module(partitioned(mixed(rows)), targets(), output, context)


def run_elsewhere(library: Path, inputs: Sequence[np.ndarray], seconds: float = 0.1) -> dict:
    """Run ``main`` in a process that has only TVM's runtime and numpy on its path."""
    np.savez(library.parent / "inputs.npz", *inputs)
    done = subprocess.run(
        [sys.executable, RUNNER, library, library.parent / "inputs.npz", "main", str(seconds)],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> CompiledLibrary:
    folder = tmp_path_factory.mktemp("compile")
    context = BuildContext(cache_with_objects(folder), folder / "work", num_threads=2)
    library = compile_mixed(folder / "out" / "model.so", context)
    stage_libraries(library, copy=False)
    return library


def test_partitions_of_two_backends_run_and_agree(compiled: CompiledLibrary) -> None:
    x = np.random.default_rng().standard_normal((64, 96)).astype(np.float32)
    (expected,) = evaluate(mixed(), [x])
    vm = relax.VirtualMachine(tvm.runtime.load_module(str(compiled.path)), tvm.cpu())
    actual = vm["main"](tvm.runtime.tensor(x)).numpy()
    assert np.ptp(expected) > 0
    assert largest_error(actual, expected) < 1e-5


def test_native_partitions_are_lowered_and_external_ones_named(context: BuildContext) -> None:
    mod = partitioned(mixed())
    assert compile_.codegen_names(mod) == {"openblas"}
    lowered = compile_.lower_native(mod, targets(), context)
    attrs = [func.attrs for func in lowered.functions.values() if func.attrs]
    assert not any(PARTITION_ATTR in a for a in attrs)
    assert compile_.codegen_names(lowered) == {"openblas"}
    assert any(isinstance(f, tvm.tirx.PrimFunc) for f in lowered.functions.values())


def test_shared_weights_are_in_the_library_once(compiled: CompiledLibrary) -> None:
    assert compiled.path.read_bytes().count(WEIGHTS.tobytes()) == 1


def test_library_names_what_it_needs_and_where_to_look(compiled: CompiledLibrary) -> None:
    dynamic = compiling.run_tool(["readelf", "-dW", str(compiled.path)])
    assert "[$ORIGIN/lib]" in dynamic
    pool, blas = compiled.shared_libraries
    assert (pool.name, blas.name) == (openmp_pool.SONAME, "libscipy_openblas.so")
    assert f"[{pool.name}]" in dynamic and f"[{blas.name}]" in dynamic
    assert str(pool.parent) not in dynamic and str(blas.parent) not in dynamic


def test_only_the_functions_of_partitions_leave_the_library(
    compiled: CompiledLibrary,
) -> None:
    table = compiling.run_tool(["nm", "-D", "--defined-only", str(compiled.path)])
    names = [line.split()[-1] for line in table.splitlines()]
    assert "__TVMBackendParallelLaunch" not in names, "TVM's loader would put its own pool there"
    assert not [name for name in names if name.startswith("collage_")]


def test_moved_bundle_loads_without_its_first_place(context: BuildContext, tmp_path: Path) -> None:
    here = tmp_path / "here"
    library = compile_mixed(here / "model.so", context)
    for staged in stage_libraries(library, copy=True):
        assert staged.is_file()
        assert not staged.is_symlink()
    x = np.random.default_rng().standard_normal((64, 96)).astype(np.float32)
    before = run_elsewhere(library.path, [x])
    there = shutil.move(here, tmp_path / "a folder elsewhere")
    shutil.rmtree(context.cache_dir)
    shutil.rmtree(context.work_dir)
    after = run_elsewhere(Path(there) / "model.so", [x])
    assert after["digest"] == before["digest"]


def test_staging_again_replaces_links_copies_and_dangling_links(tmp_path: Path) -> None:
    source = tmp_path / "elsewhere" / "libx.so"
    source.parent.mkdir()
    source.write_bytes(b"library")
    library = CompiledLibrary(tmp_path / "out" / "model.so", (source,))
    for copy in (False, True, True, False, False):
        (staged,) = stage_libraries(library, copy=copy)
        assert staged == tmp_path / "out" / "lib" / "libx.so"
        assert staged.is_symlink() is not copy
        assert staged.read_bytes() == source.read_bytes() == b"library"
    staged.unlink()
    staged.symlink_to(tmp_path / "gone")
    (staged,) = stage_libraries(library, copy=False)
    assert staged.read_bytes() == b"library"


@pytest.mark.parametrize("num_threads", [1, 2])
def test_all_backends_run_on_one_pool(
    num_threads: int, context: BuildContext, tmp_path: Path
) -> None:
    threaded = dataclasses.replace(context, num_threads=num_threads)
    library = compile_mixed(tmp_path / "model.so", threaded, rows=1024)
    stage_libraries(library, copy=False)
    x = np.random.default_rng().standard_normal((1024, 96)).astype(np.float32)
    # Two pools would show as three or four busy threads.
    assert run_elsewhere(library.path, [x], seconds=0.3)["busy_threads"] == num_threads


def test_output_that_cannot_be_written(context: BuildContext, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    output = tmp_path / "file" / "model.so"
    with pytest.raises(OutputError, match=r"cannot write '.*model.so': ") as caught:
        compile_mixed(output, context)
    assert caught.value.value == str(output)
    assert "None" not in str(caught.value)


def test_failed_link_carries_the_linker_s_words(
    context: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "libgone.so"
    monkeypatch.setattr(registry.get_backend("openblas"), "shared_libraries", lambda _: [missing])
    with pytest.raises(CompileError, match=r"linking 'model.so' failed: .*libgone.so") as caught:
        compile_mixed(tmp_path / "model.so", context)
    assert "libgone.so" in caught.value.value
    assert "\n" not in str(caught.value), "what is shown of it is one line"


def test_missing_compiler_is_no_unwritable_output(context: BuildContext, tmp_path: Path) -> None:
    nowhere = dataclasses.replace(context, cxx="no-such-compiler")
    with pytest.raises(CompileError, match="'no-such-compiler' was not found"):
        compile_mixed(tmp_path / "model.so", nowhere)


@pytest.mark.usefixtures("fresh")
def test_codegen_error_keeps_its_type_and_value(context: BuildContext, tmp_path: Path) -> None:
    backend = Recorder()
    registry.register_backend(backend)
    target = BackendTarget("recorder", tvm.target.Target("llvm"), backend.parse_options({}))
    names = registry.register_relax_patterns(backend, target)
    patterns = [relax.backend.get_pattern(name) for name in names]
    mod = graph([(20,)], lambda _, x: op.exp(x))
    mod = relax.transform.FuseOpsByPattern(patterns, annotate_codegen=True)(mod)
    with pytest.raises(CodegenError, match="stops here") as caught:
        compile_.compile_module(mod, [target], tmp_path / "model.so", context)
    assert caught.value.value == backend.calls[0][0]


def test_module_without_external_partitions_needs_its_threads_alone(
    context: BuildContext, tmp_path: Path
) -> None:
    mod = partitioned(graph([(8, 8)], lambda emit, x: op.exp(emit(op.add(x, constant(8, 8))))))
    library = compile_.compile_module(mod, targets(), tmp_path / "model.so", context)
    assert [path.name for path in library.shared_libraries] == [openmp_pool.SONAME]
    assert "openblas" not in compiling.run_tool(["readelf", "-dW", str(library.path)])
    assert isinstance(registry.get_backend("openblas"), ExternalBackend)
