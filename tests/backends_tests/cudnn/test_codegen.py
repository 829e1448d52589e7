"""cuDNN's generated code: sharing, plans, and libraries that link and answer without a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from collage.backends.compile import compile_module
from collage.backends.contract import BuildContext
from collage.backends.contract.errors import BackendUnavailableError, CodegenError
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
from collage.backends.cudnn.partition import read_partition
from collage.backends.cudnn.tuning import Plan
from collage.backends.link import CompiledLibrary
from collage.backends.toolchain.cuda_runtime import has_device
from collage.config import Config
from tests.backends_tests.cudnn.support import partitioned, partitions_of, residual_block, targets

pytestmark = pytest.mark.cuda


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


def test_probe_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = CudnnBackend().probe()
    assert found.usable
    assert {"cudnn", "cudart"} <= set(found.versions)
    monkeypatch.setattr(
        "collage.backends.cudnn.library.cuda_toolkit.find_header_dir", lambda _: None
    )
    missing = CudnnBackend().probe()
    assert not missing.usable
    assert missing.reason == "cudnn.h not found"
    assert missing.remedy.startswith("pip install")
    with pytest.raises(BackendUnavailableError):
        find_installation()
