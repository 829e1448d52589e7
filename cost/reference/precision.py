"""With how many digits a result may be computed, which is how closely it must agree."""

from __future__ import annotations

from collections.abc import Iterable

from collage.backends.contract import BackendTarget
from collage.cost.workload.workload import Workload

HALF = frozenset({"float16", "bfloat16"})


def allows_half(targets: Iterable[BackendTarget]) -> bool:
    """Whether a target may compute float32 tensors with the digits of half precision."""
    return any(t.implementation.precision(t.options).reduced for t in targets)


def is_half(workload: Workload, target: BackendTarget) -> bool:
    """Whether a workload's result has the digits of half precision, whatever its dtype.

    Parameters
    ----------
    workload : Workload
        What is computed.
    target : BackendTarget
        What computes it.
    """
    specs = (*workload.inputs, *workload.constants, *workload.outputs)
    return allows_half([target]) or any(spec.dtype in HALF for spec in specs)
