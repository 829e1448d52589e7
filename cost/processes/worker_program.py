"""The program that worker processes run, imported once for all of them."""

from __future__ import annotations

import os

from collage.backends.toolchain.children.fork_server import fork_servers
from collage.backends.toolchain.children.python_program import PythonProgram
from collage.cost.processes.protocol import Settings, encode

_MODULE = "collage.cost.worker.main"

_NOT_IMPORTED = ("torch",)
"""TVM imports it wherever it is installed: seconds, and the GPU libraries that it brings along, in
every worker and for nothing."""


def worker_program(settings: Settings) -> PythonProgram:
    """What a worker process runs.

    Parameters
    ----------
    settings : Settings
        Its own.

    Returns
    -------
    PythonProgram
        Of one module, whatever the settings.
    """
    return PythonProgram(_MODULE, (encode(settings).decode(),), _NOT_IMPORTED)


def prepare_workers() -> None:
    """Have what all workers need imported while something else is done: a search reads its model
    first, and only then has something to compile. Of use where servers are kept.
    """
    program = PythonProgram(_MODULE, (), _NOT_IMPORTED)
    fork_servers().prepare(program, dict(os.environ))
