"""From partition functions to a static library: stubs with static data over one runtime."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm
from tvm import relax

from collage.backends.contract import BuildContext
from collage.backends.openblas.options import OpenBLASOptions
from collage.backends.openblas.partition import Partition, Source, read_partition
from collage.backends.openblas.problem import Problem, plan
from collage.backends.relax.calls.strided_views import View, matmul_views
from collage.backends.relax.partitions.composites import compiling
from collage.backends.toolchain import native
from collage.backends.toolchain.compiling import Compilation, cached_compilation
from collage.backends.toolchain.stubs import Stubs

TEMPLATES = Path(__file__).resolve().parent / "templates"


@dataclass(frozen=True)
class Operand:
    """Where a stub finds an operand: an argument by position, or a constant by symbol."""

    argument: int
    num_elements: int
    constant: str = ""


@dataclass(frozen=True)
class Entry:
    """One entry point, as the stub template sees it."""

    symbol: str
    problem: Problem
    activation: str
    a: Operand
    b: Operand
    bias: str
    num_arguments: int
    result_elements: int


def compile_functions(
    functions: Sequence[relax.Function],
    options: OpenBLASOptions,
    include: Path,
    context: BuildContext,
) -> tvm.runtime.Module:
    """A library that calls OpenBLAS for each partition of one IRModule.

    Parameters
    ----------
    functions, options, context
        As :meth:`ExternalBackend.codegen` gets them, the options with the target.
    include : Path
        Folder of OpenBLAS's ``cblas.h``.

    Returns
    -------
    tvm.runtime.Module
        A static library that exports the partitions' symbols.

    Raises
    ------
    CodegenError
        When a function is not what the patterns match.
    """
    constants: dict[str, np.ndarray] = {}
    entries = [_entry(read_partition(function), options, constants) for function in functions]
    stubs = Stubs.render(TEMPLATES, [e.symbol for e in entries], constants, entries=entries)
    runtime = [compilation.run() for compilation in runtime_compilations(include, context)]
    return stubs.compile(runtime, context)


def runtime_compilations(include: Path, context: BuildContext) -> list[Compilation]:
    """How the runtime's files are compiled.

    Parameters
    ----------
    include : Path
        Folder of ``cblas.h``.
    context : BuildContext
        Compiler and cache folder.

    Returns
    -------
    list of Compilation
        Not run yet; independent of each other.
    """
    # Neither flag changes a result: they let the compiler turn comparisons into vector blends.
    flags = ["-fopenmp", f"-I{include}", "-fno-math-errno", "-fno-trapping-math"]
    depends = [TEMPLATES / "openblas_runtime.h", include / "cblas.h"]
    return [
        cached_compilation(TEMPLATES / name, context, flags, depends)
        for name in ("openblas_runtime.c", "openblas_epilogue.c")
    ]


def _entry(
    partition: Partition, options: OpenBLASOptions, constants: dict[str, np.ndarray]
) -> Entry:
    """Plan one partition, and add the constants it needs to ``constants`` by symbol.

    Raises
    ------
    CodegenError
        When BLAS cannot run the product on the data as it lies.
    """
    lhs, rhs = partition.lhs, partition.rhs
    with compiling("openblas", partition.symbol):
        problem = plan(*matmul_views(lhs.view, rhs.view, partition.result))
        if options.transpose_vector_weights and problem.rows == 1 and not problem.b.transposed:
            rhs = _transposed_constant(rhs)
            problem = plan(*matmul_views(lhs.view, rhs.view, partition.result))
    a, b = (rhs, lhs) if problem.swapped else (lhs, rhs)
    bias = ""
    if partition.bias is not None:
        # A scalar bias, and that of a single column computed as a row, hold for every column.
        values = np.broadcast_to(partition.bias.reshape(-1), (problem.columns,))
        bias = _add_constant(values, constants)
    return Entry(
        partition.symbol,
        problem,
        partition.activation,
        _operand(a, constants),
        _operand(b, constants),
        bias,
        partition.num_inputs + 1,
        problem.rows * problem.columns * int(np.prod(problem.batch, dtype=np.int64)),
    )


def _transposed_constant(source: Source) -> Source:
    """The same matrix stored by columns, if it is a constant stored by rows."""
    if source.constant is None or source.view.shape != source.constant.shape:
        return source
    stored = np.ascontiguousarray(np.swapaxes(source.constant, -1, -2))
    view = View.dense(stored.shape).transposed()
    return dataclasses.replace(source, view=view, constant=stored)


def _operand(source: Source, constants: dict[str, np.ndarray]) -> Operand:
    elements = int(np.prod(source.view.shape, dtype=np.int64))
    symbol = "" if source.constant is None else _add_constant(source.constant, constants)
    return Operand(source.argument, elements, symbol)


def _add_constant(array: np.ndarray, constants: dict[str, np.ndarray]) -> str:
    symbol = native.constant_symbol(array)
    constants[symbol] = np.ascontiguousarray(array)
    return symbol
