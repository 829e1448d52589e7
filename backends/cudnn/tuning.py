"""cuDNN's execution plans: remembered, or built where a GPU of the target is here.

A small program, compiled from the very runtime that will run the plans, builds them in a process of
its own: a driver that crashes there takes nothing with it. A plan that was made for another device
or version of cuDNN is never run, because the runtime compares both.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import CodegenError
from collage.backends.cudnn.library import (
    HEADERS,
    PLANNER,
    SOURCES,
    TEMPLATES,
    Installation,
    compile_source,
)
from collage.backends.cudnn.options import CudnnOptions
from collage.backends.cudnn.problem import Graph
from collage.backends.devices import CUDA
from collage.backends.storage import TuningRecord, TuningStage, TuningStore, exclusive
from collage.backends.toolchain import compiling, cuda_toolkit

SCHEMA = 2
"""Of this backend's records in the tuning store."""

NO_DEVICE = 3
"""The planner's exit status where there is no GPU of the wanted architecture."""

TIMEOUT_SEC = 600

PLANNERS = 6
"""Most processes that plan at the same time."""


@dataclass(frozen=True)
class Plan:
    """A graph's plan.

    Attributes
    ----------
    data : bytes
        What the runtime's ``load`` takes.
    workspace_bytes : int
        Scratch memory that a run of it takes.
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
    """The plans of a module's graphs: remembered, or built where a GPU of the target is here.

    Where none is, those that were built for the GPU that was tuned on last; Nones for graphs that
    nobody has planned.

    Parameters
    ----------
    graphs : sequence of Graph
        Distinct ones.
    table : callable
        Writes the C source that defines ``collage_cudnn_graphs`` in the order of the given graphs.
    options : CudnnOptions
        Of the target.
    compute_capability : int
        Of the GPU compiled for.
    installation : Installation
        The cuDNN of this machine.
    context : BuildContext
        Where to build and what to remember plans in.

    Returns
    -------
    list[Plan or None]
        In the order of the graphs.

    Raises
    ------
    CodegenError
        When cuDNN refuses a graph; carries its reason. The others' plans are remembered then.
    ReplayMissError
        In a replay, when a plan that is to be measured is not remembered.
    """
    store = TuningStore.of("cudnn", SCHEMA, context)
    planned = _Planning(store, table, options, compute_capability, installation, context)
    plans = planned.answers(graphs)
    return [plans.get(graph) for graph in graphs]


class _Planning(TuningStage[Graph, Plan]):
    """Lets cuDNN plan graphs, all that are missing in one run of the planner.

    Parameters
    ----------
    store : TuningStore
        What was found before, and where findings go.
    table, options, compute_capability, installation, context
        As :func:`build_plans` takes them.
    """

    def __init__(
        self,
        store: TuningStore,
        table: Callable[[Sequence[Graph]], str],
        options: CudnnOptions,
        compute_capability: int,
        installation: Installation,
        context: BuildContext,
    ) -> None:
        arch = f"sm_{compute_capability}"
        super().__init__(store, arch, CUDA.facts(arch, context))
        self._table, self._options, self._installation = table, options, installation
        self._capability, self._context = compute_capability, context
        # Heuristics take no time: from the same graph they make the same plan again.
        self.replay_must_know = options.algorithm == "measured"

    def key(self, question: Graph) -> dict[str, Any]:
        return {
            "graph": question.fields(),
            "options": dataclasses.asdict(self._options),
            "cudnn": self._installation.version,
            "program": _program_digest(),
        }

    def describe(self, question: Graph) -> str:
        return question.name

    def read(self, question: Graph, record: TuningRecord) -> Plan | None:
        data = self.store.blob(record.blob("plan"))
        if data is None:
            return None
        return Plan(data, record.result["workspace_bytes"], record.result["engines"])

    def measure(
        self, questions: Sequence[Graph], failed: dict[Graph, CodegenError]
    ) -> dict[Graph, Plan]:
        self._context.work_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._context.work_dir) as scratch:
            installation, context = self._installation, self._context
            runtime = compile_source(SOURCES[0], installation, context)
            planner = link_planner(
                self._table(questions), Path(scratch), runtime, installation, context
            )
            output = Path(scratch, "plans")
            output.mkdir()
            asked = len(questions)
            if not run_planner(planner, output, self._capability, self._options, asked):
                return {}
            return self._read_plans(questions, output, failed)

    def _read_plans(
        self, questions: Sequence[Graph], output: Path, failed: dict[Graph, CodegenError]
    ) -> dict[Graph, Plan]:
        """Remember what the planner has made of the graphs."""
        plans = {}
        for index, graph in enumerate(questions):
            refusal = output / f"{index}.error"
            if refusal.is_file():
                reason = refusal.read_text(encoding="utf-8", errors="replace")
                message = f"cuDNN refuses {graph.name}: {reason}"
                failed[graph] = CodegenError(message, value=graph.name)
                continue
            text = (output / f"{index}.txt").read_text(encoding="utf-8")
            workspace, _, engines = text.partition(" ")
            plan = Plan((output / f"{index}.plan").read_bytes(), int(workspace), engines)
            plans[graph] = plan
            if not self.store.replay:
                result = {
                    "plan": self.store.keep(plan.data),
                    "workspace_bytes": plan.workspace_bytes,
                    "engines": plan.engines,
                }
                self.record(graph, result)
        return plans


@functools.cache
def _program_digest() -> str:
    """A digest of the sources that make cuDNN's graphs and plans of this project's."""
    digest = hashlib.sha256()
    for name in (SOURCES[0], PLANNER, *HEADERS):
        digest.update((TEMPLATES / name).read_bytes())
    return digest.hexdigest()[:16]


def link_planner(
    table: str, folder: Path, runtime: Path, installation: Installation, context: BuildContext
) -> Path:
    """The program that builds the plans of a table of graphs.

    Parameters
    ----------
    table : str
        C source that defines the graphs.
    folder : Path
        For scratch; the program lies there as well.
    runtime : Path
        The object of ``cudnn_program.cc``.
    installation : Installation
        What is linked against.
    context : BuildContext
        Compiler and cache folder.

    Returns
    -------
    Path
        The executable; run by :func:`run_planner`.

    Raises
    ------
    CompileError
        When it cannot be compiled or linked.
    """
    source = folder / "graphs.c"
    source.write_text(table, encoding="utf-8")
    flags = [f"-I{Path(__file__).resolve().parent / 'templates'}", *compiling.ffi_include_flags()]
    graphs = compiling.compile_object(source, source.with_suffix(".o"), context, flags)
    main = compile_source(PLANNER, installation, context)
    libraries = [installation.library, cuda_toolkit.cudart().path]
    program = folder / "planner"
    compiling.run_tool(
        [
            *(context.cxx, "-o", str(program), str(main), str(graphs), str(runtime)),
            *map(str, libraries),
            *(f"-Wl,-rpath,{library.parent}" for library in libraries),
            *("-Wl,--allow-shlib-undefined", "-pthread", "-ldl"),
        ]
    )
    return program


def run_planner(
    planner: Path, output: Path, compute_capability: int, options: CudnnOptions, count: int
) -> bool:
    """Run the planner; False when there is no GPU of that architecture.

    Parameters
    ----------
    planner : Path
        The program.
    output : Path
        An existing folder that it writes plans to.
    compute_capability : int
        Of the architecture that plans are for.
    options : CudnnOptions
        Whether plans are timed.
    count : int
        Graphs that the program has. Where nothing is timed several processes share them: an engine
        that is compiled when it is planned takes seconds.

    Returns
    -------
    bool
        Whether plans were asked for: each graph has its ``.plan`` or its ``.error`` in the folder
        then.

    Raises
    ------
    CodegenError
        When it fails or does not end.
    """
    measured = options.algorithm == "measured"
    shares = 1 if measured else max(1, min(count, PLANNERS))
    command = [str(planner), str(output), str(compute_capability), "1" if measured else "0"]
    # What is timed must have the device for itself.
    with (
        exclusive(CUDA) if measured else nullcontext(),
        ThreadPoolExecutor(shares, thread_name_prefix="collage-cudnn") as pool,
    ):
        each = [(*command, str(first), str(shares)) for first in range(shares)]
        return all(list(pool.map(_run_share, each)))


def _run_share(command: Sequence[str]) -> bool:
    """Plan some of the graphs; False when there is no GPU of that architecture."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SEC
        )
    except subprocess.TimeoutExpired as err:
        raise CodegenError(
            f"building cuDNN plans took more than {TIMEOUT_SEC} s", value=TIMEOUT_SEC
        ) from err
    if done.returncode not in (0, NO_DEVICE):
        raise CodegenError(
            f"building cuDNN plans failed with exit status {done.returncode}: "
            f"{done.stderr.strip()[-400:]}",
            value=done.stderr,
        )
    return done.returncode == 0
