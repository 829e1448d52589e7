"""Kernels in tensor programs that bind threads by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tvm import te
from tvm.script.ir_builder import tirx as T


@contextmanager
def kernel(blocks: int, threads: int) -> Iterator[tuple[Any, Any]]:
    """What is written inside is what each thread does.

    Parameters
    ----------
    blocks : int
        Of threads.
    threads : int
        Of a block.

    Yields
    ------
    tuple
        The number of a thread's block, and its own within it.
    """
    block, thread = te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x")
    extents = [
        T.attr(block, "thread_extent", blocks),
        T.attr(thread, "thread_extent", threads),
    ]
    with T.frame_scope(extents):
        yield block, thread
