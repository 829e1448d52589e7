"""Where and how native code is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from collage.backends.contract.errors import TargetError

NUM_THREADS_ALL = 0
"""Value of ``num_threads`` that stands for every core the process may use."""

AUTO, INSIDE, BESIDE = WEIGHTS = ("auto", "inside", "beside")
"""Where a library may have its weights."""


@dataclass(frozen=True)
class BuildContext:
    """Where and how native code is built.

    Attributes
    ----------
    cache_dir : Path
        Objects compiled once per content; survives the process.
    work_dir : Path
        Scratch folder of one compilation; must exist until the final link.
    num_threads : int
        Threads every backend's kernels use; ``NUM_THREADS_ALL`` for all cores.
    cxx : str
        The C++ compiler driver, also used to link.
    ieee_denormals : bool
        Compute with denormal numbers; otherwise a processor's threads flush them to zero.
    tuning_log : Path or None
        The user's log, which takes and gives what backends find by timing kernels, see
        :mod:`collage.backends.storage.tuning_store`; the cache folder has it in any case.
    tuning_database : str or None
        The URL of the log, where that is no file. It may hold a password: worker processes get it
        in their messages, never on their command lines, and it is not shown.
    replay : bool
        Time nothing while compiling: a choice that was not made before is an error.
    weights : str
        Where libraries have their weights: ``inside``, ``beside`` (in files that they map) or
        ``auto``, which is beside where there is more than the linker takes.
    gpu : tuple of (str, int) or None
        Name and compute capability of the GPU that is here, where whoever asks knows them. A
        process that has to find them out begins to use the GPU, which takes a second, and as many
        seconds as there are processes that do.
    hurried : bool
        Whoever asks has little time: a backend that compiles kernels in order to choose among them
        chooses among its most promising ones.
    weights_dir : Path or None
        Of the library that is being compiled: where its files of weights go; None has them inside.

    Examples
    --------
    >>> context = BuildContext(Path("cache"), Path("scratch"), num_threads=4)
    >>> context.num_threads, context.cxx, context.replay
    (4, 'g++', False)
    """

    cache_dir: Path
    work_dir: Path
    num_threads: int = NUM_THREADS_ALL
    cxx: str = "g++"
    ieee_denormals: bool = False
    tuning_log: Path | None = None
    tuning_database: str | None = field(default=None, repr=False, kw_only=True)
    replay: bool = False
    gpu: tuple[str, int] | None = field(default=None, kw_only=True)
    hurried: bool = field(default=False, kw_only=True)
    weights: str = field(default=AUTO, kw_only=True)
    weights_dir: Path | None = field(default=None, kw_only=True)


_default: Callable[[], BuildContext] | None = None


def set_default_context(make: Callable[[], BuildContext]) -> None:
    """Say where code generators build that Relax calls without a context.

    Nothing here reads the environment: whoever does hands in what it found.
    """
    global _default
    _default = make


def default_context() -> BuildContext:
    """Where code generators build that Relax calls without a context.

    Raises
    ------
    TargetError
        When nobody has said so.
    """
    if _default is None:
        raise TargetError("code generators have no folder to build in; import collage first")
    return _default()
