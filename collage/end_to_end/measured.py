"""The end-to-end gate: whole partitionings, compiled and timed against each other.

Additive costs miss what crosses partition borders: caches, layouts, memory traffic. So what the
search found has to win, end to end, against every single backend and against greedy partitioning,
and whoever wins is what the user gets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import tvm
from numpy.typing import NDArray

from collage.backends.compile import CompiledLibrary, compile_module
from collage.backends.contract.base import BackendTarget, BuildContext
from collage.backends.contract.errors import CodegenError, CompileError, MeasurementError
from collage.cost.base import Cost, CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.database.keys import ModuleKeys
from collage.cost.database.record import Record
from collage.cost.device.detect import device_kind
from collage.cost.measure.end_to_end import WholeModel
from collage.cost.measure.model_builder import ModelJob, ModelResult, compile_models
from collage.cost.measure.scheduler import default_builders
from collage.cost.models.measured import MeasuredCostModel
from collage.cost.worker.requirements import stage_to_measure
from collage.passes.lower import lower
from collage.progress import ProgressCallback, ProgressEvent
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import Partitioning

LIBRARY = "model.so"


@dataclass(frozen=True)
class Contender:
    """A partitioning that takes part, under a name for the report."""

    name: str
    partitioning: Partitioning


@dataclass(frozen=True)
class Standing:
    """How a contender did.

    Attributes
    ----------
    module : tvm.IRModule
        The partitioned module.
    key : str
        Equal for contenders that came out the same; those are timed once.
    cost : Cost
        Invalid with a reason when it cannot be compiled or computes something else.
    largest_error : float or None
        Difference to the reference's outputs, relative to the largest value of each; None when it
        did not run.
    """

    contender: Contender
    module: tvm.IRModule
    key: str
    cost: Cost
    largest_error: float | None


@dataclass(frozen=True)
class _Variant:
    """A distinct module among the contenders', under the name of the first that has it."""

    name: str
    module: tvm.IRModule


class _NotCompiledError(Exception):
    """Some variants turned out not to compile; what was asked for is to be asked again."""


class Gate:
    """Compiles and times whole partitionings of one model.

    Parameters
    ----------
    mod : tvm.IRModule
        The normalized module.
    graph : DataflowGraph
        Of its ``main``.
    targets : sequence of BackendTarget
        Everything a partitioning may use.
    context : BuildContext
        Libraries are kept under its ``work_dir``.
    model : MeasuredCostModel
        Times, or answers from the log.
    inputs, expected : sequence of ndarray
        What to run on, and what must come out.
    tell : callable, optional
        Told about every library compiled.
    """

    def __init__(
        self,
        mod: tvm.IRModule,
        graph: DataflowGraph,
        targets: Sequence[BackendTarget],
        context: BuildContext,
        model: MeasuredCostModel,
        inputs: Sequence[NDArray[Any]],
        expected: Sequence[NDArray[Any]],
        tell: ProgressCallback | None = None,
    ) -> None:
        self._mod = mod
        self._graph = graph
        self._targets = tuple(targets)
        self._context = context
        self._model = model
        self._inputs = inputs
        self._expected = expected
        self._keys = ModuleKeys()
        self._libraries: dict[str, CompiledLibrary] = {}
        self._failures: dict[str, Cost] = {}
        self._tell = tell

    def measure(self, contenders: Sequence[Contender]) -> list[Standing]:
        """Time contenders in alternation; in the order given."""
        modules = [lower(self._mod, self._graph, c.partitioning) for c in contenders]
        keys = [self._keys.key(module) for module in modules]
        variants: dict[str, _Variant] = {}
        for contender, module, key in zip(contenders, modules, keys, strict=True):
            variants.setdefault(key, _Variant(contender.name, module))
        records = self._time(variants)
        return [
            self._standing(contender, module, key, records.get(key))
            for contender, module, key in zip(contenders, modules, keys, strict=True)
        ]

    def _standing(
        self, contender: Contender, module: tvm.IRModule, key: str, record: Record | None
    ) -> Standing:
        if record is None:
            return Standing(contender, module, key, self._failures[key], None)
        error = record.largest_error if record.cost.is_valid else None
        return Standing(contender, module, key, record.cost, error)

    def _time(self, variants: Mapping[str, _Variant]) -> dict[str, Record]:
        """Time what can be compiled; libraries are made only when the log lacks a time."""
        path = partial(self._path, variants)
        while True:
            rest = [
                WholeModel(key, variant.name, self._targets, partial(path, key))
                for key, variant in variants.items()
                if key not in self._failures
            ]
            try:
                records = self._model.measure_end_to_end(rest, self._inputs, self._expected)
            except _NotCompiledError:
                continue  # Those are out, the others still count.
            return dict(zip((model.key for model in rest), records, strict=True))

    def _path(self, variants: Mapping[str, _Variant], key: str) -> Path:
        """The library of one variant; asked for the first one, all are compiled."""
        if key not in self._libraries:
            self._compile(
                {
                    other: variant
                    for other, variant in variants.items()
                    if other not in self._libraries and other not in self._failures
                }
            )
            if any(other in self._failures for other in variants):
                raise _NotCompiledError
        return self._libraries[key].path

    def _compile(self, variants: Mapping[str, _Variant]) -> None:
        """Compile variants at once, and note those that cannot be."""
        ended = 0

        def done(index: int, result: ModelResult) -> None:
            nonlocal ended
            ended += 1
            key, variant = items[index]
            if result.library is None:
                self._failures[key] = Cost(result.status, reason=result.reason)
            else:
                self._libraries[key] = result.library
            reason = f": {result.reason}" if result.reason else ""
            self._say(ended, len(items), f"{variant.name}{reason}")

        items = list(variants.items())
        self._say(0, len(items), f"{len(items)} whole models")
        if len(items) == 1:
            # As a refinement compiles its trials: not worth a process.
            done(0, self._compile_here(*items[0]))
            return
        jobs = [ModelJob(variant.module, self._place(key)) for key, variant in items]
        parallel = default_builders(device_kind(self._targets))
        compile_models(jobs, self._targets, self._context, MeasureConfig(), parallel, done)

    def _compile_here(self, key: str, variant: _Variant) -> ModelResult:
        try:
            library = self.library(key, variant.module)
        except (CodegenError, CompileError) as err:
            return ModelResult(CostStatus.BUILD_FAILED, str(err))
        return ModelResult(CostStatus.VALID, library=library)

    def _say(self, done: int, total: int, message: str) -> None:
        if self._tell is not None:
            self._tell(ProgressEvent("compile", done, total, message))

    def _place(self, key: str) -> Path:
        return self._context.work_dir / f"model-{key[:16]}" / LIBRARY

    def library(self, key: str, module: tvm.IRModule) -> CompiledLibrary:
        """The linked library of a partitioned module, compiled on first use."""
        if key not in self._libraries:
            library = compile_module(
                module, self._targets, self._place(key), self._context, cuda_graph=True
            )
            stage_to_measure(library)
            self._libraries[key] = library
        return self._libraries[key]


def best(standings: Sequence[Standing]) -> Standing:
    """The fastest valid one; the earlier of equals.

    Raises
    ------
    MeasurementError
        When none is valid; gives every reason.
    """
    valid = [s for s in standings if s.cost.is_valid]
    if not valid:
        reasons = "; ".join(f"{s.contender.name}: {s.cost.reason}" for s in standings)
        raise MeasurementError(f"no partitioning runs correctly: {reasons}", value=reasons)
    return min(valid, key=lambda s: s.cost.median_sec)
