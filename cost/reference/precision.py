"""With how many digits a result may be computed, which is how closely it must agree."""

from __future__ import annotations

from collections.abc import Iterable

from collage.backends.contract.base import BackendTarget
from collage.cost.workload.workload import Workload

HALF = frozenset({"float16", "bfloat16"})

_REDUCING_OPTIONS = ("use_fp16", "use_bf16", "use_int8", "use_tf32", "allow_tf32")
"""Options by which a target allows fewer digits than its tensors have. TF32 has as many as
float16."""


def allows_half(targets: Iterable[BackendTarget]) -> bool:
    """Whether a target may compute float32 tensors with the digits of half precision."""
    return any(getattr(t.options, name, False) for t in targets for name in _REDUCING_OPTIONS)


def is_half(workload: Workload, target: BackendTarget) -> bool:
    """Whether a workload's result has the digits of half precision, whatever its dtype."""
    specs = (*workload.inputs, *workload.constants, *workload.outputs)
    return allows_half([target]) or any(spec.dtype in HALF for spec in specs)
