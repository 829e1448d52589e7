"""Collage as a TVM pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm

from collage.pipeline.optimize import optimize
from collage.targets import TargetLike

__all__ = ["CollagePartition"]


def CollagePartition(targets: Sequence[TargetLike], **options: Any) -> tvm.transform.Pass:
    """Partition a module for the given targets, as a pass.

    Parameters
    ----------
    targets : sequence
        As :func:`collage.optimize` takes them.
    **options
        Every keyword of :func:`collage.optimize`, for example ``log``.

    Returns
    -------
    tvm.transform.Pass
        A module pass whose result is ordinary Relax BYOC: external partitions carry ``Codegen``.

    Examples
    --------
    >>> from collage.testing import graph
    >>> from tvm import relax
    >>> mod = graph([(1, 8)], lambda emit, x: relax.op.nn.relu(x))
    >>> partition = CollagePartition(["llvm"], log="relu.jsonl")
    >>> passes = tvm.transform.Sequential([partition, relax.transform.CanonicalizeBindings()])
    >>> partitioned = passes(mod)
    >>> sorted(var.name_hint for var in partitioned.get_global_vars())
    ['main', 'tvm_0']
    """

    def partition(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        return optimize(mod, targets, **options).module

    return tvm.transform.module_pass(partition, opt_level=0, name="CollagePartition")
