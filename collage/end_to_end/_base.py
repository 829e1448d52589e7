"""Whole partitionings against each other: who compares them.

Additive costs miss what crosses partition borders: caches, layouts, memory traffic. So what the
search found has to win, end to end, against every single backend and against greedy partitioning,
and whoever wins (``verdict``) is what the user gets.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

import tvm

from collage.backends.contract import BuildContext, TargetSet
from collage.backends.link import CompiledLibrary
from collage.cost.database.keys import ModuleKeys
from collage.cost.deadline import NEVER, Deadline
from collage.cost.processes.staging import compile_to_measure
from collage.end_to_end.evaluation import Contender, Evaluation, Lowered, Refusal, Seen, everybody
from collage.end_to_end.memory import memory_of
from collage.passes import lower
from collage.report import MemoryUse
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph

_LIBRARY = "model.so"

_KEPT_MODULES = 16
"""More than take part in a comparison: to lower thousands of operators takes seconds."""


class EndToEndComparison(ABC):
    """Compares whole partitionings of one model, and compiles them.

    Parameters
    ----------
    mod : tvm.IRModule
        The normalized module.
    graph : DataflowGraph
        Of its ``main``.
    targets : TargetSet
        Everything a partitioning may use.
    context : BuildContext
        Libraries are kept under its ``work_dir``.

    Examples
    --------
    One that wants as few partitions as can be:

    >>> from collage.cost import Cost, CostStatus
    >>> from collage.search import greedy
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import graph
    >>> class FewestPartitions(EndToEndComparison):
    ...     def _evaluate(self, lowered):
    ...         counts = [len(one.contender.partitioning.candidates) for one in lowered]
    ...         costs = [Cost(CostStatus.VALID, float(count)) for count in counts]
    ...         return [Evaluation.of(*pair) for pair in zip(lowered, costs)]
    >>> targets = resolve_targets(["llvm"])
    >>> mod = graph([(8,)], lambda emit, x: tvm.relax.op.exp(x))
    >>> dataflow = DataflowGraph.from_function(mod["main"])
    >>> comparison = FewestPartitions(mod, dataflow, targets, BuildContext(Path("a"), Path("b")))
    >>> comparison.compare([Contender("greedy", greedy(dataflow, targets))])[0].cost.median_sec
    1.0
    """

    def __init__(
        self, mod: tvm.IRModule, graph: DataflowGraph, targets: TargetSet, context: BuildContext
    ) -> None:
        self._mod = mod
        self._graph = graph
        self._targets = targets
        self._context = context
        self._keys = ModuleKeys()
        self._libraries: dict[str, CompiledLibrary] = {}
        self._memory: dict[str, MemoryUse] = {}
        self._modules: dict[tuple[Candidate, ...], tuple[tvm.IRModule, str]] = {}

    def compare(self, contenders: Sequence[Contender]) -> list[Evaluation]:
        """The evaluation of each contender, in the order given.

        Raises
        ------
        ReplayMissError
            In a strict replay, when the log lacks one of them.
        """
        return self._evaluate([self._lowered(contender) for contender in contenders])

    def stated(self, contender: Contender) -> Lowered:
        """A contender with what it takes in memory; nothing is compiled."""
        return self._lowered(contender)

    def settle(self) -> None:  # noqa: B027 (nothing to do is a good answer)
        """Wait for what runs on these cores in the background."""

    def try_out(
        self,
        contenders: Sequence[Contender],
        deadline: Deadline = NEVER,
        enough: Callable[[], float] = everybody,
    ) -> tuple[list[Evaluation], Seen]:
        """Whether some run at all, about how they stand, and what finding that out took.

        Parameters
        ----------
        contenders : sequence of Contender
            Compiled at once, and timed in turns for a moment: enough to tell a good one from one
            that takes twice the time, no more.
        deadline : Deadline, optional
            When to give them up; by default not within any budget.
        enough : callable, optional
            How many of them will do, as things stand: those still compiling are given up when so
            many are compiled.

        Returns
        -------
        tuple[list[Evaluation], Seen]
            The evaluations in the order of the contenders, one without time for each that was
            given up; and the seconds that were seen.
        """
        return self._evaluate([self._lowered(one) for one in contenders]), Seen(0.0, 0.0)

    def culprits(self, evaluation: Evaluation) -> list[Refusal]:
        """Which partitions make a contender wrong; from now on they are known not to be usable.

        Parameters
        ----------
        evaluation : Evaluation
            Of a contender that computes a wrong result.
        """
        return []

    def identity(self) -> str:
        """One text for the same model and the same surroundings, on whatever machine and in
        whatever folder; another one where times would not compare."""
        surroundings = hashlib.sha256(self._surroundings().encode()).hexdigest()
        return f"{self._keys.key(self._mod)[:16]}-{surroundings[:16]}"

    def _surroundings(self) -> str:
        """All that times depend on besides the model."""
        return json.dumps(sorted(target.key() for target in self._targets))

    def _lowered(self, contender: Contender) -> Lowered:
        candidates = contender.partitioning.candidates
        if candidates not in self._modules:
            module = lower(self._mod, self._graph, contender.partitioning)
            if len(self._modules) == _KEPT_MODULES:
                del self._modules[next(iter(self._modules))]
            self._modules[candidates] = module, self._keys.key(module)
        module, key = self._modules[candidates]
        if key not in self._memory:
            self._memory[key] = memory_of(module, tuple(self._targets), context=self._context)
        return Lowered(contender, module, key, memory=self._memory[key])

    @abstractmethod
    def _evaluate(self, lowered: Sequence[Lowered]) -> list[Evaluation]:
        """The evaluation of each, in the order given."""

    def library(self, lowered: Lowered) -> CompiledLibrary:
        """The linked library of a contender, compiled on first use.

        Raises
        ------
        CodegenError, CompileError
            When it cannot be compiled.
        """
        key = lowered.key
        if key not in self._libraries:
            self._libraries[key] = compile_to_measure(
                lowered.module, self._targets, self._place(key), self._context
            )
        return self._libraries[key]

    def _place(self, key: str) -> Path:
        return self._context.work_dir / f"model-{key[:16]}" / _LIBRARY
