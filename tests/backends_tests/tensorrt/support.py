"""What the tests of the TensorRT backend share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.cases.compiling import cuda_target
from benchmarks.gpu.cases.tensorrt._case import module
from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.registry import get_backend
from collage.backends.relax.static_shape import static_shape
from collage.backends.tensorrt.library import Package, build_plan, find_package
from collage.backends.tensorrt.problem import NetworkWriter
from collage.passes import lower
from collage.search.dataflow import DataflowGraph
from collage.search.strategies.without_costs import single_backend
from tests.backends_tests.tensorrt.network import evaluate_network

ARCH = "sm_89"
"""TensorRT for RTX builds engines for it without a GPU."""


def installed() -> Package:
    """TensorRT, which the caller knows to be here."""
    package, reason = find_package()
    assert package is not None, reason
    return package


def target(arch: str = ARCH, **options: Any) -> BackendTarget:
    """A ``tensorrt`` target."""
    parsed = get_backend("tensorrt").parse_options(options)
    return BackendTarget("tensorrt", cuda_target(arch), parsed)


def native(arch: str = ARCH) -> BackendTarget:
    """TVM's own target for the same device."""
    return BackendTarget.of("tvm", cuda_target(arch))


def new_context(folder: Path, cache: Path | None = None) -> BuildContext:
    """A context below a folder, by default with a cache of its own."""
    return BuildContext(cache or folder / "cache", folder / "work")


@dataclasses.dataclass(frozen=True)
class Partitioned:
    """A module after greedy partitioning for TensorRT alone."""

    module: tvm.IRModule
    target: BackendTarget

    @property
    def functions(self) -> list[relax.Function]:
        """The regions, in the order of their names."""
        names = {gvar.name_hint: func for gvar, func in self.module.functions.items()}
        return [names[n] for n in sorted(names) if "Codegen" in (names[n].attrs or {})]

    @property
    def native_names(self) -> list[str]:
        """Names of the functions that TVM runs."""
        return [
            gvar.name_hint
            for gvar, func in self.module.functions.items()
            if func.attrs and "collage.backend" in func.attrs
        ]

    def region_inputs(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """The inputs of ``main`` in the order in which its one region takes them."""
        main = self.module["main"]
        params = list(main.params)
        for block in main.body.blocks:
            for binding in block.bindings:
                value = binding.value
                if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar):
                    return [inputs[params.index(arg)] for arg in value.args]
        raise AssertionError("main calls no region")


def partition(mod: tvm.IRModule, wanted: BackendTarget) -> Partitioned:
    """Give TensorRT what it takes, and TVM the rest."""
    graph = DataflowGraph.from_function(mod["main"], mod)
    device = BackendTarget.of("tvm", wanted.device)
    partitioning = single_backend(graph, wanted, device)
    return Partitioned(lower(mod, graph, partitioning), wanted)


@dataclasses.dataclass
class Written:
    """What the network of a region was seen to be.

    Attributes
    ----------
    layers : list of str
        TensorRT's layer types in order.
    outputs : list of ndarray
        The network evaluated in numpy; empty where there were no inputs.
    plan : bytes
        The engine.
    """

    layers: list[str] = dataclasses.field(default_factory=list)
    outputs: list[NDArray[Any]] = dataclasses.field(default_factory=list)
    plan: bytes = b""


def write(
    function: relax.Function, wanted: BackendTarget, inputs: Sequence[NDArray[Any]] = ()
) -> Written:
    """Write a region's network, evaluate it in numpy, and let TensorRT build it."""
    package, seen = installed(), Written()
    writers = []

    def fill(network: Any, logger: Any) -> None:
        writer = NetworkWriter(package, network, logger, wanted.options, "region")
        writers.append(writer)
        writer.write(function)
        seen.layers = [network.get_layer(i).type.name for i in range(network.num_layers)]
        if inputs:
            seen.outputs = evaluate_network(package.module, network, inputs)

    arch = str(wanted.device.attrs["arch"])
    seen.plan, _ = build_plan(package, arch, wanted.options, fill)
    return seen


def random_inputs(mod: tvm.IRModule, seed: int = 0) -> list[NDArray[Any]]:
    """Normally distributed inputs of ``main``."""
    rng = np.random.default_rng(seed)
    return [
        rng.standard_normal(static_shape(p)).astype(str(p.ty.dtype)) for p in mod["main"].params
    ]


def dense(columns: relax.Expr) -> tvm.IRModule:
    """A product with these columns, of which there are thirteen rows, and a rectifier."""
    return module([((3, 13), "float32")], lambda x: op.nn.relu(op.matmul(x, columns)))


def region(mod: tvm.IRModule, **options: Any) -> tuple[relax.Function, BackendTarget]:
    """The one region of a module, and the target with these options."""
    wanted = target(**options)
    (function,) = partition(mod, wanted).functions
    return function, wanted
