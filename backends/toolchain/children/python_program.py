"""A program of Python's that a child runs, and how a fresh interpreter is told to."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from collage.backends.toolchain.children import child_boot


@dataclass(frozen=True)
class PythonProgram:
    """A module whose ``main`` a child runs, with a :class:`child_boot.Line` to the parent.

    Attributes
    ----------
    module : str
        Its ``main`` is called with the line and the arguments; a fork server calls its
        ``prepare`` once before, if it has one.
    arguments : tuple of str
        What ``main`` gets.
    without : tuple of str
        Packages that are not to be found while the module is imported.

    Examples
    --------
    >>> command = PythonProgram("my_program", ("an argument",)).command()
    >>> command[0] == sys.executable, json.loads(command[-1])["arguments"]
    (True, ['an argument'])
    """

    module: str
    arguments: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def command(self) -> list[str]:
        """The command line of a fresh interpreter that runs it and dies with this process.

        Not a fork of this process, which would inherit the state of TVM's and OpenMP's threads.

        Returns
        -------
        list of str
            For :class:`subprocess.Popen`; the child has this process's import path.
        """
        settings = {
            "path": sys.path,
            "parent": os.getpid(),
            "module": self.module,
            "arguments": self.arguments,
            "without": self.without,
        }
        # -P: the script's folder is no place to import from.
        return [sys.executable, "-P", str(Path(child_boot.__file__)), json.dumps(settings)]
