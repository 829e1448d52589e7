"""What the tests of the OpenVINO backend share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

installed = pytest.mark.skipif(
    not get_backend("openvino").probe().usable, reason="the extra [openvino] is not installed"
)
"""Marks what needs OpenVINO."""


def backend() -> ExternalBackend:
    """OpenVINO's."""
    found = get_backend("openvino")
    assert isinstance(found, ExternalBackend)
    return found


def target(**options: Any) -> BackendTarget:
    """A target of OpenVINO's."""
    return BackendTarget.of("openvino", tvm.target.Target("llvm"), options)


def partitioned(mod: tvm.IRModule, wanted: BackendTarget) -> tvm.IRModule:
    """A graph with all in OpenVINO's hands that its patterns take, each match alone."""
    return partition(backend(), wanted, [PatternCase("whole", mod)])


def is_taken_whole(mod: tvm.IRModule, wanted: BackendTarget) -> bool:
    """Whether OpenVINO takes all of a graph."""
    main = partitioned(mod, wanted)["case0"]
    values = [binding.value for block in main.body.blocks for binding in block.bindings]
    operators = [value.op for value in values if isinstance(value, tvm.relax.Call)]
    return bool(operators) and all(isinstance(op, tvm.ir.GlobalVar) for op in operators)


class Library:
    """Graphs in one library; ``run`` takes their names."""

    def __init__(
        self, graphs: Mapping[str, tvm.IRModule], context: BuildContext, **options: Any
    ) -> None:
        cases = [PatternCase(name, mod) for name, mod in graphs.items()]
        chosen = target(**options)
        mod = partition(backend(), chosen, cases)
        library = compile_module(mod, [chosen], context.work_dir / "model.so", context)
        stage_libraries(library, copy=False)
        self.path: Path = library.path
        self._names = list(graphs)
        self._compiled = CompiledCases(library.path, cases)

    def run(self, name: str, inputs: Sequence[Array]) -> list[Array]:
        """Outputs of one graph."""
        return self._compiled.run(self._names.index(name), inputs)
