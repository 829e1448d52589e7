"""Child processes that are spoken to in lines: how they are started, and their side of the line.

A :class:`ChildProcess` is asked a line and answers one, or :class:`ChildDiedError` and
:class:`ChildTimeoutError` say what became of it. :func:`python_command` starts one that runs
Python; there, :class:`Line` is the line to the parent. Neither side needs TVM.
"""

from collage.backends.toolchain.children.child_boot import Line
from collage.backends.toolchain.children.child_process import (
    ChildDiedError,
    ChildProcess,
    ChildTimeoutError,
    python_command,
)

__all__ = ["ChildDiedError", "ChildProcess", "ChildTimeoutError", "Line", "python_command"]
