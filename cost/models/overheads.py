"""What crossing into a partition costs besides the partition itself.

A stand-alone measurement contains one entry into the virtual machine; a model with many partitions
pays it once. Subtracting ``call_sec`` from each measurement makes costs additive.

On a CPU this is the virtual machine's own work. On a GPU, where launches are hidden when candidates
are timed, a call of nothing is the distance of two events that follow each other, and one more
partition is a dependent kernel of one thread: its start after the end of the one before it, on a
stream whose processor is ahead. In a captured graph that gap is a little shorter, so chains of many
small partitions come out slightly dearer than they are; the end-to-end comparison decides.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import ir, relax

from collage.backends.contract import PARTITION_ATTR
from collage.backends.contract.errors import MeasurementError
from collage.cost.base import Cost, Overheads
from collage.cost.workload.workload import Workload

__all__ = ["Overheads", "overheads_from", "probe_workloads"]

_CHAINS = (0, 4, 16)


def probe_workloads(backend: str) -> list[Workload]:
    """Chains of 0, 4 and 16 native partitions on one element."""
    return [Workload.from_module(_chain(length, backend)) for length in _CHAINS]


def overheads_from(costs: Sequence[Cost]) -> Overheads:
    """Overheads from the costs of :func:`probe_workloads`.

    Raises
    ------
    MeasurementError
        When one of them is not valid.
    """
    for cost in costs:
        if not cost.is_valid:
            raise MeasurementError(f"the overheads cannot be measured: {cost.reason}")
    empty, short, long = (cost.median_sec for cost in costs)
    slope = (long - short) / (_CHAINS[2] - _CHAINS[1])
    return Overheads(empty, max(slope, 0.0))


def _chain(length: int, backend: str) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    ty = relax.TensorType((1,), "float32")
    # One function called many times: the builder would merge equal ones anyway.
    x = relax.Var("x", ty)
    with builder.function("step", [x], attrs={PARTITION_ATTR: backend}, private=True):
        with builder.dataflow():
            out = builder.emit_output(relax.op.negative(x))
        builder.emit_func_output(out)
    step = builder.get().get_global_var("step")
    x = relax.Var("x", ty)
    with builder.function("main", [x]):
        with builder.dataflow():
            value: relax.Expr = x
            for _ in range(length):
                value = builder.emit(ir.Call(step, [value]))
            out = builder.emit_output(value)
        builder.emit_func_output(out)
    return builder.get()
