"""From partition functions to a static library: stubs with static data over one runtime."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from collage.backends.contract import BuildContext
from collage.backends.cudnn.library import SOURCES, TEMPLATES, Installation, compile_source
from collage.backends.cudnn.options import CudnnOptions
from collage.backends.cudnn.partition import Partition, read_partition
from collage.backends.cudnn.problem import Graph
from collage.backends.cudnn.tuning import Plan, build_plans
from collage.backends.toolchain import native
from collage.backends.toolchain.source_templates import source_templates
from collage.backends.toolchain.stubs import Stubs


@dataclass(frozen=True)
class Module:
    """The partitions of one IRModule: distinct graphs, and those that share them.

    Attributes
    ----------
    graphs : tuple of Graph
        No two of them are equal.
    sites : tuple of (Partition, int)
        Each partition and the index of its graph.
    """

    graphs: tuple[Graph, ...]
    sites: tuple[tuple[Partition, int], ...]

    @classmethod
    def of(cls, partitions: Sequence[Partition]) -> Module:
        """Group partitions by graph."""
        graphs: dict[Graph, int] = {}
        sites = [(p, graphs.setdefault(p.graph, len(graphs))) for p in partitions]
        return cls(tuple(graphs), tuple(sites))


def compile_functions(
    functions: Sequence[relax.Function],
    options: CudnnOptions,
    compute_capability: int,
    installation: Installation,
    context: BuildContext,
) -> tvm.runtime.Module:
    """A library that runs a plan of cuDNN's for each partition of one IRModule.

    Parameters
    ----------
    functions, options, context
        As :meth:`ExternalBackend.codegen` gets them, the options with the target.
    compute_capability : int
        Of the GPU to run on, for example 90.
    installation : Installation
        What the runtime is compiled with.

    Returns
    -------
    tvm.runtime.Module
        A static library that exports the partitions' symbols.

    Raises
    ------
    CodegenError
        When a function is not what the patterns match, or where a GPU is present and cuDNN has no
        plan for it.
    CompileError
        When the C++ compiler fails; carries its standard error.
    """
    module, plans = plan_functions(functions, options, compute_capability, installation, context)
    runtime = [compile_source(name, installation, context) for name in SOURCES]
    return render_stubs(module, plans, options).compile(runtime, context)


def plan_functions(
    functions: Sequence[relax.Function],
    options: CudnnOptions,
    compute_capability: int,
    installation: Installation,
    context: BuildContext,
) -> tuple[Module, list[Plan | None]]:
    """Read partitions, and build the plans of their graphs where a GPU is here; kept in the cache.

    Parameters
    ----------
    functions, options, compute_capability, installation, context
        As :func:`compile_functions` takes them.

    Returns
    -------
    tuple[Module, list[Plan or None]]
        The partitions with their distinct graphs, and a plan for each graph in that order; None
        where no GPU of that capability is here and none was planned before.

    Raises
    ------
    CodegenError
        As :func:`compile_functions`.
    """
    module = Module.of(
        [read_partition(function, options, compute_capability) for function in functions]
    )
    table = functools.partial(render_table, options)
    plans = build_plans(module.graphs, table, options, compute_capability, installation, context)
    return module, plans


def render_table(options: CudnnOptions, graphs: Sequence[Graph]) -> str:
    """The C source that defines graphs for the planner.

    Parameters
    ----------
    options : CudnnOptions
        They decide how plans are chosen.
    graphs : sequence of Graph
        In the order of the table.

    Returns
    -------
    str
        It defines ``collage_cudnn_graphs`` and ``collage_cudnn_num_graphs``.
    """
    template = source_templates(TEMPLATES, _FILTERS).get_template("table.c.jinja")
    return template.render(graphs=graphs, options=options)


def render_stubs(module: Module, plans: Sequence[Plan | None], options: CudnnOptions) -> Stubs:
    """The entry points of a module, with the plans of its graphs as data.

    Parameters
    ----------
    module : Module
        Graphs and partitions.
    plans : sequence of Plan or None
        Of each graph; without one the first call on a device chooses it.
    options : CudnnOptions
        As the target has them.

    Returns
    -------
    Stubs
        Their text, and each plan's bytes as a constant; the workspace is the largest of all plans'.
    """
    data = [np.frombuffer(b"" if plan is None else plan.data, np.uint8) for plan in plans]
    symbols = [native.constant_symbol(array) if array.size else "" for array in data]
    return Stubs.render(
        TEMPLATES,
        [partition.symbol for partition, _ in module.sites],
        {symbol: array for symbol, array in zip(symbols, data, strict=True) if symbol},
        _FILTERS,
        graphs=module.graphs,
        sites=module.sites,
        plans=[(symbol, array.size) for symbol, array in zip(symbols, data, strict=True)],
        options=options,
        workspace_bytes=max((plan.workspace_bytes for plan in plans if plan), default=0),
    )


def _c_double(value: float) -> str:
    """A number that C reads back exactly."""
    return repr(value) if math.isfinite(value) else "INFINITY"


_FILTERS = {"c_double": _c_double}
