"""Partitions of small graphs as the ``cutlass`` backend's code generator reads them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from benchmarks.gpu.cases import CudaCase
from benchmarks.gpu.cases.compiling import ARCH, cuda_target, partition_case
from benchmarks.gpu.cases.float64 import widen, widened
from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.registry import get_backend
from collage.backends.cutlass.codegen import read_partitions
from collage.backends.cutlass.families import families
from collage.backends.cutlass.families.gemm.problem import GemmProblem, Operand, plan
from collage.backends.cutlass.library import template_headers
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.cutlass.partition import Partition
from collage.backends.cutlass.unit import Unit, compile_flags
from collage.backends.relax.modules.lift_constants import lift_constants
from collage.backends.relax.static_shape import static_shape
from collage.backends.toolchain import compiling
from collage.backends.toolchain.cuda_toolkit import cached_cuda_compilation, cudart
from collage.config import Config
from collage.testing.backend_cases import verdicts

Array = NDArray[Any]


@dataclass(frozen=True)
class Whole:
    """A case of which the backend takes all there is, as one partition.

    Attributes
    ----------
    values : tuple of relax.Expr
        What ``main`` gives the partition's function: its own parameters, or constants.
    """

    partition: Partition
    values: tuple[relax.Expr, ...]
    case: CudaCase

    def operands(self) -> tuple[list[Array], Array]:
        """Random operands in the kernel's order, and the case's result; both in float64."""
        main = self.case.module["main"]
        rng = np.random.default_rng(7)
        shapes = [static_shape(param) for param in main.params]
        inputs = [rng.standard_normal(shape) for shape in shapes]
        (result,) = widened(self.case.module).run(inputs)
        names = [param.name for param in main.params]

        def value(expr: relax.Expr) -> Array:
            if isinstance(expr, tvm.ir.GenericConst):
                return widen(expr.value.numpy())
            return inputs[names.index(expr.name)]

        return [value(self.values[position]) for position in self.partition.arguments], result


def read_whole(case: CudaCase) -> Whole:
    """The one partition of a case, and what it is called with."""
    lowered = lower_case(case)
    (partition,) = read_partitions(_functions(lowered), families(), options_of(case), ARCH)
    calls = [binding.value for binding in lowered["main"].body.blocks[0].bindings]
    call = next(c for c in calls if isinstance(getattr(c, "op", None), tvm.ir.GlobalVar))
    return Whole(partition, tuple(call.args), case)


def read_case(case: CudaCase) -> Partition:
    """The one partition of a case."""
    return read_whole(case).partition


def read_module(case: CudaCase) -> list[Partition]:
    """Every partition of a case."""
    return read_partitions(_functions(lower_case(case)), families(), options_of(case), ARCH)


def options_of(case: CudaCase) -> CutlassOptions:
    """The case's options, parsed."""
    options = get_backend("cutlass").parse_options(case.options)
    assert isinstance(options, CutlassOptions)
    return options


def lower_case(case: CudaCase) -> tvm.IRModule:
    """The case's module, partitioned greedily and with its constants lifted as for a build."""
    return lift_constants(partition_case(case, cuda_target()).module, {"cutlass"})


def _functions(mod: tvm.IRModule) -> list[relax.Function]:
    return [
        func
        for func in mod.functions.values()
        if func.attrs is not None and str(func.attrs.get("Codegen", "")) == "cutlass"
    ]


def refusal(pattern: str, mod: tvm.IRModule, options: Mapping[str, Any] | None = None) -> str:
    """Why a pattern that matches does not take a graph; empty where it takes it.

    Raises
    ------
    AssertionError
        When the pattern does not even match.
    """
    backend = get_backend("cutlass")
    target = BackendTarget("cutlass", cuda_target(), backend.parse_options(options or {}))
    triple = next(t for t in backend.patterns(target) if t.name == f"cutlass.{pattern}")
    answers = verdicts(triple, mod["main"])
    assert answers, f"'{pattern}' does not match"
    assert all(answer or answer.reason for answer in answers), "a refusal without a reason"
    return "" if any(answers) else answers[0].reason


class HostLibrary:
    """A compiled kernel unit, loaded on a machine that need not have a GPU."""

    def __init__(self, unit: Unit, folder: Path) -> None:
        cache = Config.from_environment().cache_dir
        context = BuildContext(cache, folder / "work")
        source = folder / unit.file_name
        source.write_text(unit.text, encoding="utf-8")
        flags = compile_flags(CutlassOptions())
        made = cached_cuda_compilation(source, context, ARCH, flags, template_headers()).run()
        path = folder / "unit.so"
        runtime = cudart().path
        compiling.run_tool(
            [
                *("g++", "-shared", "-o", str(path), str(made), str(runtime)),
                f"-Wl,-rpath,{runtime.parent}",
            ]
        )
        self._library = ctypes.CDLL(str(path))
        self._symbol = unit.symbol

    def workspace(self, sizes: tuple[int, ...]) -> int:
        """Bytes of scratch memory that the kernel asks for."""
        function = self._library[f"{self._symbol}_workspace"]
        function.restype = ctypes.c_size_t
        return int(function((ctypes.c_int64 * len(sizes))(*sizes)))


def problem(m: int, n: int, k: int, batch: int = 1, dtype: str = "float16") -> GemmProblem:
    """A product of two row-major matrices, or of as many pairs as the batch has."""
    return plan(Operand((batch, m, k)), Operand((batch, k, n)), (batch, m, n), dtype)
