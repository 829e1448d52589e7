"""A stack of open Relax functions for each thread, where TVM has one for the whole process.

While a search asks for measurements, another thread makes the first whole answer, and a user may
search in several threads of their own. Each writes Relax functions; on one stack, who closes a
function finds another's on top.
"""

from __future__ import annotations

import threading

from tvm import relax


class _StackPerThread(threading.local):
    """What :class:`relax.BlockBuilder` does with its stack, on the calling thread's own.

    Examples
    --------
    >>> stack = _StackPerThread()
    >>> stack.append(relax.BlockBuilder())
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(1) as other:
    ...     other.submit(len, stack).result(), len(stack)
    (0, 1)
    """

    def __init__(self) -> None:
        # Called anew in each thread that comes by.
        self._open: list[relax.BlockBuilder] = []

    def __len__(self) -> int:
        return len(self._open)

    def __getitem__(self, index: int) -> relax.BlockBuilder:
        return self._open[index]

    def append(self, builder: relax.BlockBuilder) -> None:
        """Open a function."""
        self._open.append(builder)

    def pop(self) -> relax.BlockBuilder:
        """Close the innermost function."""
        return self._open.pop()


def separate_builder_stacks() -> None:
    """Give each thread a stack of its own; what this thread has open stays open.

    TVM keeps the stack in a class attribute, and its frontends make builders of that class, so no
    subclass of ours would do.
    """
    if isinstance(relax.BlockBuilder._stack, _StackPerThread):
        return
    stack = _StackPerThread()
    for builder in relax.BlockBuilder._stack:
        stack.append(builder)
    relax.BlockBuilder._stack = stack
