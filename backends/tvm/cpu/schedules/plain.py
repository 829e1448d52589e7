"""Independent outer loops run in parallel, and nothing else is changed: what cannot go wrong."""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx

from collage.backends.tvm.common.blocks import fuse_all, leading_independent, root_blocks


def schedule(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Share out each stage's leading independent loops; itself where TVM will not have that."""
    if not isinstance(func.body, s_tir.SBlockRealize):
        return func
    sch = s_tir.Schedule(func)
    try:
        for block in root_blocks(sch):
            _share_out(sch, block)
    except s_tir.ScheduleError:
        return func
    return sch.mod["main"]


def _share_out(sch: s_tir.Schedule, block: Any) -> None:
    independent = leading_independent(sch, block)
    if independent:
        sch.parallel(fuse_all(sch, independent))
