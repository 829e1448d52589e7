"""What every family of GPU kernels needs: questions about accesses, and whether threads are bound.

The questions about blocks, axes and strides are those of the CPU's schedules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from collage.backends.tvm.common.families import Refusal
from collage.backends.tvm.cuda.rows.lines import MULTIPROCESSORS

VECTOR_BYTES = 16
"""The widest load and store of one thread."""

WARP = 32

_HOST_LOOP = "host"


@dataclass(frozen=True)
class Gpu:
    """What a schedule must know of the device.

    Attributes
    ----------
    target : tvm.target.Target
        Of kind ``cuda``.
    sm : int
        Compute capability times ten, 90 for ``sm_90a``.
    num_sms : int
        Multiprocessors to fill; TVM's target does not say, so a large chip's number.
    max_threads : int
        Threads per block.

    Examples
    --------
    >>> gpu = Gpu.of_target(tvm.target.Target({"kind": "cuda", "arch": "sm_90a"}))
    >>> gpu.sm, gpu.max_threads
    (90, 1024)
    """

    target: tvm.target.Target
    sm: int
    max_threads: int
    num_sms: int = MULTIPROCESSORS

    @classmethod
    def of_target(cls, target: tvm.target.Target) -> Gpu:
        """Read the architecture and the limits from the target's attributes."""
        digits = "".join(c for c in str(target.attrs.get("arch", "sm_50")) if c.isdigit())
        return cls(target, int(digits or 50), int(target.attrs.get("max_num_threads", 1024)))


Family = Callable[[tirx.PrimFunc, Gpu], "tirx.PrimFunc | Refusal"]


def dtype_bytes(buffer: Any) -> int:
    """Bytes of one element of a buffer."""
    return max(1, int(tvm.DataType(str(buffer.dtype)).bits) // 8)


def unbound_stores(func: tirx.PrimFunc) -> list[str]:
    """Names of buffers that are written outside of every thread of a kernel.

    Those whose kernel would be launched in a loop on the host count too.
    """
    found: list[str] = []
    for name, axes in _stores_with_threads(func):
        if not axes or axes[0] == _HOST_LOOP:
            found.append(name)
    return found


def _stores_with_threads(func: tirx.PrimFunc) -> list[tuple[str, tuple[str, ...]]]:
    found: list[tuple[str, tuple[str, ...]]] = []

    def walk(node: Any, axes: tuple[str, ...]) -> None:
        if isinstance(node, tirx.BufferStore):
            found.append((str(node.buffer.name), axes))
        elif isinstance(node, tirx.For):
            bound = node.thread_binding
            if bound is not None:
                axes = (*axes, str(bound.thread_tag))
            elif not axes and not (isinstance(node.extent, tirx.IntImm) and int(node.extent) == 1):
                axes = (_HOST_LOOP,)
            walk(node.body, axes)
        elif isinstance(node, tirx.AttrStmt) and node.attr_key == "thread_extent":
            walk(node.body, (*axes, str(node.node.thread_tag)))
        elif isinstance(node, tirx.SeqStmt):
            for child in node.seq:
                walk(child, axes)
        elif isinstance(node, tirx.IfThenElse):
            walk(node.then_case, axes)
            if node.else_case is not None:
                walk(node.else_case, axes)
        elif isinstance(node, s_tir.SBlockRealize):
            walk(node.block, axes)
        elif isinstance(node, s_tir.SBlock):
            if node.init is not None:
                walk(node.init, axes)
            walk(node.body, axes)
        elif hasattr(node, "body"):
            walk(node.body, axes)

    walk(func.body, ())
    return found


def has_opaque_threads(func: tirx.PrimFunc) -> bool:
    """Whether a program binds threads by itself, as TOPI's sorts and scans do."""

    def check(node: Any) -> tvm_ffi.VisitInterrupt | None:
        bound = isinstance(node, tirx.AttrStmt) and node.attr_key == "thread_extent"
        return tvm_ffi.VisitInterrupt() if bound else None

    return tvm_ffi.structural_walk(func.body, [(tirx.AttrStmt, check)]) is not None
