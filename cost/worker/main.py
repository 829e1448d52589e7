"""The program of a worker process: answers requests until there are no more.

Started by :class:`collage.cost.processes.worker_process.WorkerProcess`.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

from threadpoolctl import threadpool_limits

from collage.backends.contract.errors import CollageError
from collage.backends.contract.registry import load_builtin_backends
from collage.backends.toolchain.children.child_boot import Line
from collage.cost.processes.plugins import load_plugins
from collage.cost.processes.protocol import NotReady, Ready, Settings, decode_handshake, encode
from collage.cost.worker.dispatch import Tasks


def prepare() -> None:
    """What every worker needs and none changes: for the server that they are forks of."""
    load_builtin_backends()


def main(line: Line, text: str) -> None:
    """Serve requests until the input ends.

    Parameters
    ----------
    line : Line
        To the search.
    text : str
        The :class:`Settings`.
    """
    try:
        settings: Settings = decode_handshake(text.encode(), Settings)
        tasks = Tasks(settings.session)
        load_plugins(settings.plugins)
        if settings.open_device:
            tasks.open_device()
    except CollageError as err:
        line.answer(encode(NotReady(str(err))))
        return
    except (ImportError, AttributeError, TypeError, ValueError) as err:
        line.answer(encode(NotReady(f"{type(err).__name__}: {err}")))
        return
    if settings.blas_threads is not None:
        # Not by the environment, which children that compute with more threads would not share:
        # each kind would have a server of its own to import everything.
        threadpool_limits(limits=settings.blas_threads, user_api="blas")
    if settings.data_limit_bytes is not None:
        _limit_memory(settings.data_limit_bytes)
    line.answer(encode(Ready()))
    for request in line:
        tasks.answer(request, line.answer)
    if settings.has_context:
        # Drivers' contexts and libraries do not always survive being taken down in some order.
        os._exit(0)


def _limit_memory(data_limit_bytes: int) -> None:
    """Stop allocations that outrun the parent's watch; counted from what is held now."""
    data_pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
    limit = data_pages * resource.getpagesize() + data_limit_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
