"""From partition functions to a static library: stubs with static data over one runtime."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from collage.backends.contract.base import BuildContext
from collage.backends.cudnn.library import SOURCES, TEMPLATES, Installation, compile_source
from collage.backends.cudnn.options import CudnnOptions
from collage.backends.cudnn.partition import Partition, read_partition
from collage.backends.cudnn.problem import Graph
from collage.backends.cudnn.tuning import Plan, build_plans
from collage.backends.toolchain import native
from collage.backends.toolchain.source_templates import source_templates


@dataclass(frozen=True)
class Site:
    """One entry point, as the stub template sees it; ``graph`` is an index."""

    symbol: str
    graph: int
    arguments: tuple[int, ...]
    num_arguments: int


@dataclass(frozen=True)
class PlanData:
    """A graph's plan, as the stub template sees it; no symbol where there is none."""

    symbol: str
    num_bytes: int


@dataclass(frozen=True)
class Module:
    """The partitions of one IRModule: distinct graphs, and the sites that share them."""

    graphs: tuple[Graph, ...]
    sites: tuple[Site, ...]

    @classmethod
    def of(cls, partitions: Sequence[Partition]) -> Module:
        """Group partitions by graph."""
        graphs: dict[Graph, int] = {}
        sites = []
        for partition in partitions:
            index = graphs.setdefault(partition.graph, len(graphs))
            sites.append(
                Site(partition.symbol, index, partition.arguments, partition.num_arguments)
            )
        return cls(tuple(graphs), tuple(sites))


def compile_functions(
    functions: Sequence[relax.Function],
    options: CudnnOptions,
    compute_capability: int,
    installation: Installation,
    context: BuildContext,
) -> tvm.runtime.Module:
    """Compile all partitions of one IRModule.

    Raises
    ------
    CodegenError
        When a function is not what the patterns match, or where a GPU is present and cuDNN has no
        plan for it.
    """
    module, plans = plan_functions(functions, options, compute_capability, installation, context)
    text, constants = stubs(module, plans, options)
    return native.static_library(
        text,
        [site.symbol for site in module.sites],
        context,
        suffix=".c",
        constants=constants,
        flags=[f"-I{TEMPLATES}"],
        objects=[compile_source(name, installation, context) for name in SOURCES],
    )


def plan_functions(
    functions: Sequence[relax.Function],
    options: CudnnOptions,
    compute_capability: int,
    installation: Installation,
    context: BuildContext,
) -> tuple[Module, list[Plan | None]]:
    """Read partitions, and build the plans of their graphs where a GPU is here; kept in the cache.

    Raises
    ------
    CodegenError
        As :func:`compile_functions`.
    """
    module = Module.of(
        [read_partition(function, options, compute_capability) for function in functions]
    )
    table = functools.partial(_table, options)
    plans = build_plans(module.graphs, table, options, compute_capability, installation, context)
    return module, plans


def _table(options: CudnnOptions, graphs: Sequence[Graph]) -> str:
    return render("table.c.jinja", graphs=graphs, options=options)


def stubs(
    module: Module, plans: Sequence[Plan | None], options: CudnnOptions
) -> tuple[str, dict[str, np.ndarray]]:
    """The C source of a module's entry points, and the plans it refers to by symbol."""
    constants: dict[str, np.ndarray] = {}
    data = []
    for plan in plans:
        symbol = ""
        if plan is not None:
            array = np.frombuffer(plan.data, np.uint8)
            symbol = native.constant_symbol(array)
            constants[symbol] = array
        data.append(PlanData(symbol, 0 if plan is None else len(plan.data)))
    text = render(
        "stubs.c.jinja",
        graphs=module.graphs,
        sites=module.sites,
        plans=data,
        options=options,
        workspace_bytes=max((plan.workspace_bytes for plan in plans if plan), default=0),
    )
    return text, constants


def render(template: str, **values: object) -> str:
    """Fill one of the templates in."""
    templates = source_templates(TEMPLATES, {"c_double": _c_double})
    return templates.get_template(template).render(**values)


def _c_double(value: float) -> str:
    """A number that C reads back exactly."""
    return repr(value) if math.isfinite(value) else "INFINITY"
