"""What a partitioned model takes in memory, stated before anything is compiled.

Weights are the constants that the library holds, and the copies that backends make of theirs;
activations are TVM's static plan of intermediate results, and what regions of a backend keep among
themselves; workspace is what kernels ask for while they run. The process, its libraries and the
caller's inputs are not in it.

What TVM's virtual machine hands to kernels it reads out of the library, which makes a copy, and two
more while it is at it; what lies in files beside the library is used as it is mapped.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import tvm
from tvm import relax

from collage.backends.contract import BackendTarget, BuildContext, ExternalBackend, HoldsMemory
from collage.backends.contract.relax_codegen import target_of
from collage.backends.devices import common_device
from collage.backends.relax.modules.courses import COURSE_ATTR
from collage.backends.relax.modules.memory_plan import planned_bytes, tensor_bytes
from collage.backends.relax.modules.weights_beside import has_weights_beside
from collage.backends.toolchain.weight_files import LEAST_BYTES
from collage.report import MemoryUse

_MAIN = "main"

_LOADING_COPIES = 2
"""Of the virtual machine's constants, while they are read: their bytes, and what is made of them
before it is handed over."""


def memory_of(
    mod: tvm.IRModule,
    targets: Sequence[BackendTarget],
    entries: Collection[str] = (_MAIN,),
    context: BuildContext | None = None,
) -> MemoryUse:
    """What a partitioned module takes once it is compiled and called.

    Parameters
    ----------
    mod : tvm.IRModule
        As :func:`collage.passes.lower` makes it.
    targets : sequence of BackendTarget
        What its functions are for.
    entries : collection of str
        Functions that are called from outside, one at a time.
    context : BuildContext, optional
        Says where the library has its weights; by default inside.

    Returns
    -------
    MemoryUse
        In bytes: counted, not measured.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.passes import lower
    >>> from collage.search import DataflowGraph, greedy
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import constant, graph
    >>> mod = graph([(1, 64)], lambda emit, x: op.matmul(x, constant(64, 64)))
    >>> dataflow = DataflowGraph.from_function(mod["main"])
    >>> for names in (["llvm"], ["llvm", "openvino"]):
    ...     targets = resolve_targets(names)
    ...     print(memory_of(lower(mod, dataflow, greedy(dataflow, targets)), targets))
    64.0 KiB: weights 16.0 KiB, copies of weights 16.0 KiB, while loading 32.0 KiB
    32.2 KiB: weights 16.0 KiB, copies of weights 16.0 KiB, activations 256 B
    """
    every: dict[tvm.ir.GenericConst, int] = {}
    handed: dict[tvm.ir.GenericConst, int] = {}
    holders: dict[BackendTarget, HoldsMemory] = {}
    calls, regions, kernels, packed = 0, 0, 0, 0
    for var, function in mod.functions.items():
        if not isinstance(function, relax.Function) or COURSE_ATTR in (function.attrs or {}):
            continue
        constants = _constants(function)
        every.update(constants)
        planned = planned_bytes(function)
        if var.name_hint in entries:
            calls = max(calls, planned.inner + planned.outputs)
            handed.update(constants)
        elif function.attrs and "Codegen" in function.attrs:
            # Every region keeps what it needs between calls.
            regions += planned.inner
            target = target_of(function, targets)
            if isinstance(holder := target.implementation, HoldsMemory):
                holders[target] = holder
                packed += round(holder.weight_copies(function, target) * sum(constants.values()))
            backend = target.implementation
            if isinstance(backend, ExternalBackend) and backend.constants_as_arguments:
                handed.update(constants)
        else:
            handed.update(constants)
            # Of TVM's own partitions one runs at a time, and its kernel may keep what it fuses.
            kernels = max(kernels, planned.inner)
    mapped = 0
    reads_mapped = common_device(targets).reads_mapped
    if context is not None and has_weights_beside(mod, context, reads_mapped=reads_mapped):
        mapped = sum(size for size in handed.values() if size >= LEAST_BYTES)
    read = sum(handed.values()) - mapped
    copied = read + packed + (0 if reads_mapped else mapped)
    workspace = kernels + sum(h.workspace_bytes(target) for target, h in holders.items())
    loading = _LOADING_COPIES * read
    return MemoryUse(sum(every.values()), copied, calls + regions, workspace, loading)


def _constants(function: relax.Function) -> dict[tvm.ir.GenericConst, int]:
    """Those that a function holds, with their sizes; equal ones are one already."""
    found: dict[tvm.ir.GenericConst, int] = {}

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, tvm.ir.GenericConst):
            found[expr] = tensor_bytes(expr.ty)

    relax.analysis.post_order_visit(function, visit)
    return found
