"""Compiles in the background, from the very beginning, what a search is going to need.

A library backend's runtime is one object for all partitions; cuDNN's takes a compiler most of a
minute. Left to whoever needs it first, a search stands still for that long.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from collage.backends.contract import BackendTarget, BuildContext, Precompiles, members_of
from collage.backends.contract.errors import CollageError, CompileError
from collage.backends.devices import device_of
from collage.backends.toolchain.children.child_process import ChildProcess
from collage.backends.toolchain.compiling import Compilation
from collage.cost.deadline import NEVER, Deadline
from collage.cost.device import available_cores

_POLL_SEC = 0.1

_BESIDE_ONE_CORE, _BESIDE_CORES = 10, 5
"""Niceness on a single core, and on several: a model that is imported meanwhile, and compiled when
time is short, would take up to twice as long. Besides other programs these are to end, too."""


class Prefetch:
    """Compilations in the background; use as a context manager, which ends what still runs.

    Nothing is reported here: whoever needs an object that is under way waits for it, and one that
    could not be compiled is compiled again there, and its failure reported.

    Parameters
    ----------
    targets : sequence of BackendTarget
        The backends whose objects are compiled.
    context : BuildContext
        Its cache folder gets them.
    """

    def __init__(self, targets: Sequence[BackendTarget], context: BuildContext) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._running: set[ChildProcess] = set()
        kinds = {device_of(target.device) for target in targets}
        cores = available_cores()
        least = _BESIDE_ONE_CORE if cores == 1 else _BESIDE_CORES
        self._niceness = max(least, min((kind.niceness for kind in kinds), default=0))
        self._context = context
        self._pool = ThreadPoolExecutor(cores, thread_name_prefix="collage-prefetch")
        self._futures: list[Future[Path]] = [
            self._pool.submit(compilation.run, self._compile, lambda: self._closed)
            for compilation in missing(targets, context)
        ]

    def __enter__(self) -> Prefetch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_under_way(self) -> bool:
        """Whether something is still being compiled."""
        return any(not future.done() for future in self._futures)

    def lacks(self, targets: Sequence[BackendTarget]) -> bool:
        """Whether what these need is still to be compiled.

        Parameters
        ----------
        targets : sequence of BackendTarget
            Any of them.
        """
        return self.is_under_way and bool(missing(targets, self._context))

    def wait(self, deadline: Deadline = NEVER) -> None:
        """Wait until nothing is under way, for example before something is timed on these cores.

        Parameters
        ----------
        deadline : Deadline, optional
            Wait no longer than that; what is still under way goes on.
        """
        while self.is_under_way and not deadline.is_up:
            wait(self._futures, _POLL_SEC)

    def close(self) -> None:
        """End the compilers that still run, and do not wait for those of other processes; what has
        ended has left its objects in the cache."""
        with self._lock:
            self._closed = True
            for process in self._running:
                process.kill()
        self._pool.shutdown(cancel_futures=True)

    def _compile(self, command: Sequence[str]) -> None:
        with self._lock:
            if self._closed:
                raise CompileError("it is no longer needed", value=command[0])
            process = ChildProcess(command, niceness=self._niceness)
            self._running.add(process)
        with process:
            status = process.wait()
            with self._lock:
                self._running.discard(process)
        if status != 0:
            raise CompileError(f"{command[0]} failed", value=status)


def missing(targets: Sequence[BackendTarget], context: BuildContext) -> list[Compilation]:
    """What the targets' libraries will need, whatever the model is, and the cache lacks.

    Parameters
    ----------
    targets : sequence of BackendTarget
        Whose backends are asked.
    context : BuildContext
        Has the compiler and the cache folder.

    Returns
    -------
    list of Compilation
        Each once, those that take long last; empty where the cache has all.
    """
    found: dict[Path, Compilation] = {}
    for backend, target in members_of(Precompiles, targets):
        # Who cannot say what it needs now, says why when it compiles.
        with contextlib.suppress(CollageError), target.scope:
            for compilation in backend.compilations(target, context):
                found.setdefault(compilation.output, compilation)
    # C first: it takes a second, where C++ with a library's headers takes twelve.
    return sorted(
        (compilation for path, compilation in found.items() if not path.exists()),
        key=lambda compilation: not any(word.endswith(".c") for word in compilation.command),
    )
