"""What stands beside programs that bind threads by themselves: TOPI's sorts, scans and scatters.

What such a program reads may be made by stages before it that no thread has, a transposition of its
indices for example. Left alone they would run on the host, on addresses of the device.
"""

from __future__ import annotations

from tvm import s_tir, tirx

from collage.backends.tvm.common.blocks import axes_of, fuse_all, root_blocks, size_of
from collage.backends.tvm.cuda.schedules._base import Gpu, has_opaque_threads

_THREADS = 256


def schedule(func: tirx.PrimFunc, gpu: Gpu) -> tirx.PrimFunc:
    """Give the stages beside such a program a thread for each element.

    Parameters
    ----------
    func, gpu
        With threads of its own somewhere, and what runs it.

    Returns
    -------
    tirx.PrimFunc
        With the given attributes; unchanged where it is the program alone.
    """
    root = func.body
    if not isinstance(root, s_tir.SBlockRealize) or str(root.block.name_hint) != "root":
        # The program alone.
        return func
    sch = s_tir.Schedule(func)
    for block in root_blocks(sch):
        stage = sch.get(block)
        loops = sch.get_loops(block)
        if has_opaque_threads(func.with_body(stage.body)) or not loops:
            continue
        axes = axes_of(sch, block) or []
        spatial = [
            loop
            for loop, axis in zip(loops, axes, strict=False)
            if not axis.reduce and len(axes) == len(loops)
        ]
        if not spatial:
            spatial = [sch.add_unit_loop(loops[0])]
        elif len(spatial) < len(loops):
            sch.reorder(*spatial, *(loop for loop in loops if loop not in spatial))
        threads = min(_THREADS, size_of([axis for axis in axes if not axis.reduce]) or 1)
        blocks, thread = sch.split(fuse_all(sch, spatial), [None, threads])
        sch.bind(blocks, "blockIdx.x")
        sch.bind(thread, "threadIdx.x")
    return sch.mod["main"].with_attrs(func.attrs)
