"""Compiles a CUDA case the way a model is deployed: greedy partitioning, lowering, linking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tvm

from benchmarks.gpu.cases import CudaCase
from collage.backends.compile import compile_module
from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.registry import get_backend
from collage.backends.link import CompiledLibrary
from collage.cost.processes.staging import stage_to_measure
from collage.passes import lower
from collage.search.dataflow import DataflowGraph
from collage.search.strategies.without_costs import single_backend
from collage.testing.backend_cases import verdicts

ARCH = "sm_90a"
"""What the cases are compiled for: Hopper, with the instructions that only it has."""


class PatternNotTakenError(Exception):
    """The backend did not take a case's graph by the case's pattern; says what it made of it."""


@dataclass(frozen=True)
class Partitioned:
    """A case's module, partitioned and lowered, and the targets to compile it for."""

    module: tvm.IRModule
    targets: tuple[BackendTarget, ...]


def cuda_target(arch: str = ARCH) -> tvm.target.Target:
    """The device target of the cases."""
    limits = {"max_threads_per_block": 1024, "max_shared_memory_per_block": 49152}
    return tvm.target.Target({"kind": "cuda", "arch": arch, **limits})


def targets_of(case: CudaCase, device: tvm.target.Target) -> tuple[BackendTarget, ...]:
    """TVM itself, and the case's backend with the case's options."""
    target = BackendTarget.of(case.backend, device, case.options)
    if case.backend == "tvm":
        return (target,)
    return (BackendTarget.of("tvm", device), target)


def partition_case(case: CudaCase, device: tvm.target.Target) -> Partitioned:
    """Give the backend all that it takes greedily, and TVM the rest.

    Raises
    ------
    PatternNotTakenError
        When the case's pattern is not among the composites.
    """
    targets = targets_of(case, device)
    graph = DataflowGraph.from_function(case.module["main"], case.module)
    partitioning = single_backend(graph, targets[-1], targets[0])
    made = [part.name for c in partitioning.candidates for part in c.composites]
    if case.pattern and case.backend != "tvm" and case.pattern not in made:
        raise PatternNotTakenError(_refusal(case, targets[-1], made))
    return Partitioned(lower(case.module, graph, partitioning), targets)


def _refusal(case: CudaCase, target: BackendTarget, made: Sequence[str]) -> str:
    backend = get_backend(case.backend)
    triple = next((t for t in backend.patterns(target) if t.name == case.pattern), None)
    if triple is None:
        return f"'{case.pattern}' is no pattern of '{case.backend}' with these options"
    answers = [v.reason for v in verdicts(triple, case.module["main"]) if not v]
    reason = "; ".join(answers) if answers else "it does not match, or another one goes before it"
    return f"'{case.pattern}' took nothing ({reason}); made instead: {', '.join(made) or 'nothing'}"


def compile_case(
    case: CudaCase, device: tvm.target.Target, folder: Path, context: BuildContext
) -> CompiledLibrary:
    """Compile and link a case into ``folder/model.so``, with what it needs beside it.

    Raises
    ------
    PatternNotTakenError, CodegenError, CompileError
    """
    partitioned = partition_case(case, device)
    output = folder / "model.so"
    library = compile_module(partitioned.module, partitioned.targets, output, context)
    stage_to_measure(library)
    return library
