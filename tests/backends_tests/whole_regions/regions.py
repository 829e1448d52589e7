"""What the tests of backends that take whole regions share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tvm
from numpy.typing import NDArray

from collage.backends.compile import compile_module
from collage.backends.contract import BackendTarget, BuildContext, ExternalBackend
from collage.backends.contract.registry import get_backend
from collage.backends.link import stage_libraries
from collage.testing.backend_cases import CompiledCases, PatternCase, partition

Array = NDArray[Any]


@dataclass(frozen=True)
class Regions:
    """A backend that takes whole regions, by its name."""

    name: str

    @property
    def installed(self) -> pytest.MarkDecorator:
        """Marks what needs its library."""
        usable = get_backend(self.name).probe().usable
        return pytest.mark.skipif(not usable, reason=f"{self.name} is not installed")

    def backend(self) -> ExternalBackend:
        """The backend."""
        found = get_backend(self.name)
        assert isinstance(found, ExternalBackend)
        return found

    def target(self, **options: Any) -> BackendTarget:
        """A target of it."""
        return BackendTarget.of(self.name, tvm.target.Target("llvm"), options)

    def partitioned(self, mod: tvm.IRModule, wanted: BackendTarget) -> tvm.IRModule:
        """A graph with all in its hands that its patterns take, each match alone."""
        return partition(self.backend(), wanted, [PatternCase("whole", mod)])

    def is_taken_whole(self, mod: tvm.IRModule, wanted: BackendTarget) -> bool:
        """Whether it takes all of a graph."""
        main = self.partitioned(mod, wanted)["case0"]
        values = [binding.value for block in main.body.blocks for binding in block.bindings]
        operators = [value.op for value in values if isinstance(value, tvm.relax.Call)]
        return bool(operators) and all(isinstance(op, tvm.ir.GlobalVar) for op in operators)

    def library(
        self, graphs: Mapping[str, tvm.IRModule], context: BuildContext, **options: Any
    ) -> Library:
        """Graphs in one library."""
        cases = [PatternCase(name, mod) for name, mod in graphs.items()]
        chosen = self.target(**options)
        mod = partition(self.backend(), chosen, cases)
        library = compile_module(mod, [chosen], context.work_dir / "model.so", context)
        stage_libraries(library, copy=False)
        return Library(library.path, cases)


class Library:
    """Graphs in one library; ``run`` takes their names."""

    def __init__(self, path: Path, cases: Sequence[PatternCase]) -> None:
        self.path = path
        self._names = [case.pattern for case in cases]
        self._compiled = CompiledCases(path, cases)

    def run(self, name: str, inputs: Sequence[Array]) -> list[Array]:
        """Outputs of one graph."""
        return self._compiled.run(self._names.index(name), inputs)
