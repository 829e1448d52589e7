"""Plans built at compile time, where this machine has a GPU of the target's architecture.

A small program, compiled from the very runtime that will run the plans, builds them in a process of
its own: a driver that crashes there takes nothing with it. Plans are cached by content; one that
was made for another device or version of cuDNN is never run, because the runtime compares both.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import tvm

from collage.backends.contract.base import BuildContext
from collage.backends.contract.errors import CodegenError, ReplayMissError
from collage.backends.cudnn.library import PLANNER, Installation, compile_source
from collage.backends.cudnn.options import CudnnOptions
from collage.backends.cudnn.problem import Graph
from collage.backends.devices import CUDA
from collage.backends.storage.device_lock import exclusive
from collage.backends.toolchain import cuda_toolkit, native
from collage.backends.toolchain.artifact_cache import replacing
from collage.backends.toolchain.cuda_runtime import has_device

NO_DEVICE = 3
"""The planner's exit status where there is no GPU of the wanted architecture."""

TIMEOUT_SEC = 600


@dataclass(frozen=True)
class Plan:
    """A graph's plan.

    Attributes
    ----------
    data : bytes
        What the runtime's ``load`` takes.
    workspace_bytes : int
    engines : str
        cuDNN's names of the chosen engines.
    """

    data: bytes
    workspace_bytes: int
    engines: str


def build_plans(
    graphs: Sequence[Graph],
    table: Callable[[Sequence[Graph]], str],
    options: CudnnOptions,
    compute_capability: int,
    installation: Installation,
    context: BuildContext,
) -> list[Plan | None]:
    """The plans of a module's graphs, or Nones where no GPU is here to build them on.

    Parameters
    ----------
    table : callable
        Writes the C source that defines ``collage_cudnn_graphs`` in the order of the given graphs.

    Raises
    ------
    CodegenError
        When cuDNN refuses a graph; carries its reason. The others' plans are in the cache then.
    ReplayMissError
        In a replay, when a plan that is to be measured is not in the cache.
    """
    none: list[Plan | None] = [None] * len(graphs)
    if not _device_is(compute_capability):
        return none
    runtime = compile_source("cudnn_program.cc", installation, context)
    folder = context.cache_dir / "cudnn_plans"
    stems = [folder / _key(graph, options, runtime, compute_capability) for graph in graphs]
    missing = {stem: graph for stem, graph in zip(stems, graphs, strict=True) if not _read(stem)}
    if missing and context.replay and options.algorithm == "measured":
        unknown = next(iter(missing.values()))
        raise ReplayMissError(
            f"the cache holds no plan that cuDNN measured for {unknown.name} on this GPU; without "
            "a replay it is measured",
            value=unknown.name,
        )
    if missing:
        context.work_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=context.work_dir) as scratch:
            text = table(list(missing.values()))
            planner = link_planner(text, Path(scratch), runtime, installation, context)
            output = Path(scratch, "plans")
            output.mkdir()
            if not run_planner(planner, output, compute_capability, options):
                return none
            _keep(missing, output)
    return [_read(stem) for stem in stems]


def _keep(missing: Mapping[Path, Graph], output: Path) -> None:
    """Put what the planner has made of the graphs into the cache, by stem; raise on a refusal."""
    refused = []
    for index, (stem, graph) in enumerate(missing.items()):
        refusal = output / f"{index}.error"
        if refusal.is_file():
            reason = refusal.read_text(encoding="utf-8", errors="replace")
            refused.append(CodegenError(f"cuDNN refuses {graph.name}: {reason}", value=graph.name))
            continue
        # The plan last: it is what a reader looks for.
        for suffix in (".txt", ".plan"):
            with replacing(stem.with_name(stem.name + suffix)) as partial:
                partial.write_bytes((output / f"{index}{suffix}").read_bytes())
    if refused:
        raise refused[0]


def _device_is(compute_capability: int) -> bool:
    """Whether the first GPU of this machine is one of the architecture compiled for."""
    if not has_device():
        return False
    return str(tvm.cuda(0).compute_version).replace(".", "") == str(compute_capability)


def _device_name() -> str:
    return str(tvm.cuda(0).device_name)


def link_planner(
    table: str, folder: Path, runtime: Path, installation: Installation, context: BuildContext
) -> Path:
    """The program that builds the plans of a table of graphs.

    Raises
    ------
    CompileError
        When it cannot be compiled or linked.
    """
    source = folder / "graphs.c"
    source.write_text(table, encoding="utf-8")
    flags = [f"-I{Path(__file__).resolve().parent / 'templates'}", *native.ffi_include_flags()]
    graphs = native.compile_object(source, source.with_suffix(".o"), context, flags)
    main = compile_source(PLANNER, installation, context)
    libraries = [installation.library, cuda_toolkit.cudart().path]
    program = folder / "planner"
    native.run_tool(
        [
            *(context.cxx, "-o", str(program), str(main), str(graphs), str(runtime)),
            *map(str, libraries),
            *(f"-Wl,-rpath,{library.parent}" for library in libraries),
            *("-Wl,--allow-shlib-undefined", "-pthread", "-ldl"),
        ]
    )
    return program


def run_planner(
    planner: Path, output: Path, compute_capability: int, options: CudnnOptions
) -> bool:
    """Run the planner; False when there is no GPU of that architecture.

    Raises
    ------
    CodegenError
        When it fails or does not end.
    """
    measured = "1" if options.algorithm == "measured" else "0"
    command = [str(planner), str(output), str(compute_capability), measured]
    try:
        # What is timed must have the device for itself.
        with exclusive(CUDA) if options.algorithm == "measured" else nullcontext():
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SEC
            )
    except subprocess.TimeoutExpired as err:
        raise CodegenError(
            f"building cuDNN plans took more than {TIMEOUT_SEC} s", value=TIMEOUT_SEC
        ) from err
    if done.returncode == NO_DEVICE:
        return False
    if done.returncode != 0:
        raise CodegenError(
            f"building cuDNN plans failed with exit status {done.returncode}: "
            f"{done.stderr.strip()[-400:]}",
            value=done.stderr,
        )
    return True


def _key(graph: Graph, options: CudnnOptions, runtime: Path, compute_capability: int) -> str:
    # The runtime's name holds the versions of cuDNN, its frontend and the toolkit.
    device = f"{_device_name()} {compute_capability}"
    parts = [repr(graph), json.dumps(dataclasses.asdict(options)), runtime.name, device]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _read(stem: Path) -> Plan | None:
    data, text = stem.with_name(stem.name + ".plan"), stem.with_name(stem.name + ".txt")
    if not data.is_file() or not text.is_file():
        return None
    workspace, _, engines = text.read_text(encoding="utf-8").partition(" ")
    return Plan(data.read_bytes(), int(workspace), engines)
