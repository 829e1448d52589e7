"""From partition functions to a static library: stubs with products as data over one runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import tvm
from tvm import relax

from collage.backends.contract import BackendTarget, BuildContext, LibraryRequirement
from collage.backends.cublas.partition import Partition, read_partition
from collage.backends.cublas.problem import Problem
from collage.backends.cublas.timer import RUNTIME, TEMPLATES, Choice, compile_source
from collage.backends.cublas.tuning import choose
from collage.backends.storage.tuning_stage import nobody_builds
from collage.backends.toolchain.cuda_toolkit import arch_of
from collage.backends.toolchain.stubs import Stubs


def compile_functions(
    functions: Sequence[relax.Function],
    target: BackendTarget,
    library: LibraryRequirement,
    include: Path,
    context: BuildContext,
) -> tvm.runtime.Module:
    """A library that calls cublasLt for each partition of one IRModule.

    Parameters
    ----------
    functions, target, context
        As :meth:`ExternalBackend.codegen` gets them.
    library : LibraryRequirement
        cublasLt.
    include : Path
        Folder of ``cublasLt.h``.

    Returns
    -------
    tvm.runtime.Module
        A static library that exports the partitions' symbols.

    Raises
    ------
    CodegenError
        When a function is not what the patterns match, or cublasLt has no algorithm for it.
    """
    partitions = [read_partition(function, target.options) for function in functions]
    choices = choose_algorithms(partitions, target, library, include, context)
    stubs = render_stubs(partitions, choices, target.options.workspace_limit)
    return stubs.compile([compile_source(RUNTIME, include, context)], context)


def choose_algorithms(
    partitions: Sequence[Partition],
    target: BackendTarget,
    library: LibraryRequirement,
    include: Path,
    context: BuildContext,
    settled: Callable[[Problem], None] = nobody_builds,
) -> dict[Problem, Choice]:
    """The algorithms that the target's options ask to be measured, by product; else none.

    Parameters
    ----------
    partitions : sequence of Partition
        Their products are measured, each distinct one once.
    target, library, include, context
        As :func:`compile_functions` takes them.
    settled : callable, optional
        Told of each product as soon as its algorithm is known.

    Returns
    -------
    dict[Problem, Choice]
        Empty unless the target's ``algorithm`` is ``measured``.

    Raises
    ------
    CodegenError
        When cublasLt has no algorithm for a product, or timing fails.
    """
    if target.options.algorithm != "measured":
        return {}
    problems = [partition.problem for partition in partitions]
    return choose(problems, arch_of(target.device), library, include, context, settled)


def render_stubs(
    partitions: Sequence[Partition], choices: dict[Problem, Choice], workspace_limit: int
) -> Stubs:
    """One table entry per distinct product, one function per partition.

    Parameters
    ----------
    partitions : sequence of Partition
        In their order.
    choices : dict of Problem to Choice
        Algorithms, as far as some were chosen.
    workspace_limit : int
        Bytes to reserve on a device.

    Returns
    -------
    Stubs
        Not compiled yet.
    """
    numbers: dict[Problem, int] = {}
    entries = [(p, numbers.setdefault(p.problem, len(numbers))) for p in partitions]
    return Stubs.render(
        TEMPLATES,
        [partition.symbol for partition in partitions],
        products=[(problem, choices.get(problem)) for problem in numbers],
        entries=entries,
        workspace_limit=workspace_limit,
    )
