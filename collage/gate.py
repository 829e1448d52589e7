"""The end-to-end gate: whole partitionings, compiled and timed against each other.

Additive costs miss what crosses partition borders: caches, layouts, memory traffic. So what the
search found has to win, end to end, against every single backend and against greedy partitioning,
and whoever wins is what the user gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import tvm
from numpy.typing import NDArray

from collage.backends.base import BackendTarget, BuildContext
from collage.backends.compile import CompiledLibrary, compile_module
from collage.backends.errors import CodegenError, CollageError, CompileError, MeasurementError
from collage.cost.base import Cost, CostStatus
from collage.cost.end_to_end import WholeModel
from collage.cost.keys import ModuleKeys
from collage.cost.measured import MeasuredCostModel
from collage.cost.needs import stage_to_measure
from collage.cost.record import Record
from collage.lower import lower
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
        self._failures: dict[str, CollageError] = {}

    def measure(self, contenders: Sequence[Contender]) -> list[Standing]:
        """Time contenders in alternation; in the order given."""
        modules = [lower(self._mod, self._graph, c.partitioning) for c in contenders]
        keys = [self._keys.key(module) for module in modules]
        entries = {
            key: WholeModel(key, contender.name, self._targets, partial(self._path, key, module))
            for contender, module, key in zip(contenders, modules, keys, strict=True)
        }
        records = self._time(list(entries.values()))
        return [
            self._standing(contender, module, key, records.get(key))
            for contender, module, key in zip(contenders, modules, keys, strict=True)
        ]

    def _standing(
        self, contender: Contender, module: tvm.IRModule, key: str, record: Record | None
    ) -> Standing:
        if record is None:
            failed = Cost(CostStatus.BUILD_FAILED, reason=str(self._failures[key]))
            return Standing(contender, module, key, failed, None)
        error = record.largest_error if record.cost.is_valid else None
        return Standing(contender, module, key, record.cost, error)

    def _time(self, models: Sequence[WholeModel]) -> dict[str, Record]:
        """Time what can be compiled; libraries are made only when the log lacks a time."""
        while True:
            rest = [model for model in models if model.key not in self._failures]
            try:
                records = self._model.measure_end_to_end(rest, self._inputs, self._expected)
            except (CodegenError, CompileError):
                # Noted by _path: that one is out, the others still count.
                if all(model.key not in self._failures for model in rest):
                    raise
                continue
            return dict(zip((model.key for model in rest), records, strict=True))

    def _path(self, key: str, module: tvm.IRModule) -> Path:
        try:
            return self.library(key, module).path
        except (CodegenError, CompileError) as err:
            self._failures[key] = err
            raise

    def library(self, key: str, module: tvm.IRModule) -> CompiledLibrary:
        """The linked library of a partitioned module, compiled on first use."""
        if key not in self._libraries:
            folder = self._context.work_dir / f"model-{key[:16]}"
            library = compile_module(
                module, self._targets, folder / LIBRARY, self._context, cuda_graph=True
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
