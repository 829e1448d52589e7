"""Whole partitioned models, compiled several at a time in worker processes.

The variants of one model share their weights, which are hundreds of megabytes: they are written to
files once, and the modules, which then are small, refer to them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import tvm
from tvm import ir, relax

from collage.backends.compile import CompiledLibrary, compile_module
from collage.backends.contract.base import BackendTarget, BuildContext, LibraryNeed
from collage.backends.contract.errors import CodegenError, CompileError
from collage.cost.base import CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.device import policy_for
from collage.cost.processes.plugins import plugins_for
from collage.cost.processes.worker_pool import WorkerPool
from collage.cost.worker.build import (
    context_from_json,
    context_to_json,
    load_arrays,
    save_arrays,
    target_from_json,
    target_to_json,
)
from collage.cost.worker.requirements import stage_to_measure
from collage.cost.workload.canonical import ConstantCollector, Rebuilder
from collage.cost.workload.data import array_of

_PATIENCE = 10.0
"""How much longer than a single workload a whole model may take to compile."""

_MEMORY = 4
"""How much more memory it may take, as for running it."""

_COPIES = 6
"""Copies of the weights that a compiler holds at once: the module's, the serialized ones, the
object's on their way to the linker."""

_COMPILER_BYTES = 1 << 30
"""Memory of a compiler besides those."""


_WEIGHTS = "weights"


@dataclass(frozen=True)
class ModelJob:
    """A partitioned module, the library to make of it, and its name for messages."""

    module: tvm.IRModule
    output: Path
    description: str = ""


@dataclass(frozen=True)
class ModelResult:
    """A linked library with what it needs staged beside it, or why there is none.

    Attributes
    ----------
    status : CostStatus
        ``VALID`` when compiled.
    reason : str
        One line, when not compiled.
    library : CompiledLibrary or None
    """

    status: CostStatus
    reason: str = ""
    library: CompiledLibrary | None = None


def compile_models(
    jobs: Sequence[ModelJob],
    targets: Sequence[BackendTarget],
    context: BuildContext,
    config: MeasureConfig,
    parallel: int,
    done: Callable[[int, ModelResult], None],
) -> list[ModelResult]:
    """Compile variants of one model at once; one that fails, hangs or crashes hurts no other.

    Parameters
    ----------
    jobs : sequence of ModelJob
        Their outputs lie in folders of their own.
    targets : sequence of BackendTarget
        Everything that the variants may use.
    context : BuildContext
        Its scratch folder is shared.
    config : MeasureConfig
        The limits of single workloads, which are widened.
    parallel : int
        Compilers at a time at the most; fewer where they would not fit into memory.
    done : callable
        Given each result, by the index of its job, as soon as it is there.

    Raises
    ------
    MeasurementError
        When no worker process can be started.
    """
    if len(jobs) == 1:
        # As a refinement compiles its trials: not worth a process.
        result = _compile_here(jobs[0], targets, context)
        done(0, result)
        return [result]
    results: dict[int, ModelResult] = {}

    def take(index: int, answer: dict[str, Any]) -> None:
        results[index] = _result(answer)
        done(index, results[index])

    policy = policy_for(targets)
    context.work_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=context.work_dir, prefix="models-") as name:
        folder = Path(name)
        weights_bytes = _write([job.module for job in jobs], folder)
        shared = {
            "task": "model",
            "weights": str(folder / _WEIGHTS),
            "targets": [target_to_json(target) for target in targets],
            "context": context_to_json(context),
        }

        def request(index: int) -> dict[str, Any]:
            module = str(_module_file(folder, index))
            return {**shared, "module": module, "output": str(jobs[index].output)}

        with WorkerPool(
            plugins_for(targets),
            min(len(jobs), parallel, _that_fit(weights_bytes)),
            policy.kind.name,
            timeout_sec=_PATIENCE * policy.build_timeout_sec(config),
            memory_limit_bytes=_MEMORY * config.memory_limit_bytes,
        ) as pool:
            pool.ask(len(jobs), request, take)
    return [results[index] for index in range(len(jobs))]


def _compile_here(
    job: ModelJob, targets: Sequence[BackendTarget], context: BuildContext
) -> ModelResult:
    try:
        library = compile_to_measure(job.module, targets, job.output, context)
    except (CodegenError, CompileError) as err:
        return ModelResult(CostStatus.BUILD_FAILED, str(err))
    return ModelResult(CostStatus.VALID, library=library)


def compile_to_measure(
    module: tvm.IRModule, targets: Sequence[BackendTarget], output: Path, context: BuildContext
) -> CompiledLibrary:
    """A whole model's library with what it needs beside it.

    Parameters
    ----------
    module : tvm.IRModule
        Partitioned.
    targets : sequence of BackendTarget
        At least every backend that the module uses.
    output : Path
        The library to write.
    context : BuildContext
        Where and how to build.

    Raises
    ------
    CodegenError, CompileError
        As a backend or the compiler raised them.
    """
    library = compile_module(module, targets, output, context, cuda_graph=True)
    stage_to_measure(library)
    return library


def _write(modules: Sequence[tvm.IRModule], folder: Path) -> int:
    """Write the modules, and the weights that they share; how many bytes these have."""
    collector = ConstantCollector()
    for index, module in enumerate(modules):
        text = tvm.ir.save_json(_WithConstants(collector).module(module))
        _module_file(folder, index).write_text(text, encoding="utf-8")
    arrays = [array_of(constant) for constant in collector.constants]
    save_arrays(folder / _WEIGHTS, arrays)
    return sum(array.nbytes for array in arrays)


def _read(module: Path, weights: Path) -> tvm.IRModule:
    """A module with its weights, as it was."""
    constants = [relax.const(array, array.dtype.name) for array in load_arrays(weights)]
    mod = tvm.ir.load_json(module.read_text(encoding="utf-8"))
    return _WithConstants(lambda constant: constant, constants).module(mod)


def compile_model(request: dict[str, Any]) -> dict[str, Any]:
    """A worker's part: compile one whole model and stage what its library needs.

    Parameters
    ----------
    request : dict
        ``module`` (a file), ``weights`` (a folder), ``output``, ``targets``, ``context``.
    """
    library = compile_to_measure(
        _read(Path(request["module"]), Path(request["weights"])),
        [target_from_json(target) for target in request["targets"]],
        Path(request["output"]),
        context_from_json(request["context"]),
    )
    return {
        "status": CostStatus.VALID.value,
        "library": str(library.path),
        "shared_libraries": [str(path) for path in library.shared_libraries],
        "required": [
            [need.soname, need.version, need.package, str(need.path)] for need in library.required
        ],
        "runtimes": dict(library.runtimes),
    }


class _WithConstants(Rebuilder):
    """Exchanges constants and placeholders and leaves everything else, names included."""

    def module(self, mod: tvm.IRModule) -> tvm.IRModule:
        functions: Mapping[ir.GlobalVar, ir.BaseFunc] = {
            var: self.function(func) if isinstance(func, relax.Function) else func
            for var, func in mod.functions.items()
        }
        return tvm.IRModule(functions, attrs=mod.attrs)

    def expr(self, expr: relax.Expr) -> relax.Expr:
        return expr if isinstance(expr, ir.GlobalVar) else super().expr(expr)

    def _rename(self, var: relax.Var) -> relax.Var:
        return var


def _module_file(folder: Path, index: int) -> Path:
    return folder / f"{index}.json"


def _that_fit(weights_bytes: int) -> int:
    """How many compilers fit into the memory that is free now; one in any case."""
    each = _COPIES * weights_bytes + _COMPILER_BYTES
    return max(1, int(psutil.virtual_memory().available) // each)


def _result(answer: dict[str, Any]) -> ModelResult:
    status = CostStatus(answer["status"])
    if status is not CostStatus.VALID:
        return ModelResult(status, answer["reason"])
    library = CompiledLibrary(
        Path(answer["library"]),
        tuple(Path(path) for path in answer["shared_libraries"]),
        tuple(
            LibraryNeed(soname, version, package, Path(path))
            for soname, version, package, path in answer["required"]
        ),
        answer["runtimes"],
    )
    return ModelResult(status, "", library)
