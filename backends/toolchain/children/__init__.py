"""Child processes that are spoken to in lines: how they are started, and their side of the line.

A :class:`ChildProcess` is asked a line and answers one, or :class:`ChildDiedError` and
:class:`ChildTimeoutError` say what became of it. One that runs a :class:`PythonProgram` has a
:class:`Line` to the parent, and may be the fork of a server's that has imported its program.
Neither side needs TVM.
"""

from collage.backends.toolchain.children.child_boot import Line
from collage.backends.toolchain.children.child_process import (
    ChildDiedError,
    ChildProcess,
    ChildTimeoutError,
)
from collage.backends.toolchain.children.python_program import PythonProgram

__all__ = ["ChildDiedError", "ChildProcess", "ChildTimeoutError", "Line", "PythonProgram"]
