"""What follows a convolution or matrix product in a fused kernel, folded to one stage."""

from __future__ import annotations

from typing import Any

from tvm import s_tir

from collage.backends.tvm.common.blocks import axes_of, root_blocks, size_of
from collage.backends.tvm.common.inlining import (
    inline_stages,
    is_elementwise,
    reads_in_order,
    reads_indices,
)


def find_block(sch: s_tir.Schedule, annotation: str) -> Any | None:
    """The stage that a legalization marked with ``annotation``.

    Parameters
    ----------
    sch : s_tir.Schedule
        Of the kernel.
    annotation : str
        The key of the annotation.

    Returns
    -------
    SBlockRV or None
        The first one in the order of stages.
    """
    for block in root_blocks(sch):
        if annotation in sch.get(block).annotations:
            return block
    return None


def fold_epilogue(sch: s_tir.Schedule, view: Any, kept: set[str]) -> Any:
    """Inline ``view`` and what follows it elementwise into the last stage that can take it.

    Parameters
    ----------
    sch : s_tir.Schedule
        Changed in place.
    view : SBlockRV
        Reads the raw result and writes it in the operator's own layout.
    kept : set of str
        Names of stages that must stay.

    Returns
    -------
    SBlockRV
        The stage to compute tile by tile; ``view`` itself where its readers want something else
        than its elements in order, or are several.
    """
    inline_stages(sch, kept)
    consumers = list(sch.get_consumers(view))
    outputs = [sch.get(block) for block in sch.get_output_blocks("root")]
    is_output = any(sch.get(view).same_as(output) for output in outputs)
    if is_output or len(consumers) != 1 or not _reads_in_order(sch, view, consumers[0]):
        return view
    sch.compute_inline(view)
    return consumers[0]


def _reads_in_order(sch: s_tir.Schedule, producer: Any, consumer: Any) -> bool:
    """Whether a stage is elementwise over the same axes as what it reads from ``producer``."""
    own, other = axes_of(sch, consumer), axes_of(sch, producer)
    stmt = sch.get(consumer)
    if own is None or other is None or not is_elementwise(stmt) or reads_indices(stmt):
        return False
    if size_of(own) != size_of(other) or [a.extent for a in own] != [a.extent for a in other]:
        return False
    return reads_in_order(stmt, own, sch.get(producer).writes[0].source)
