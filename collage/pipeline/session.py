"""Where an optimization happens: its targets, its log, its folders, and who is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collage.backends.contract import BuildContext, TargetSet
from collage.backends.contract.context import AUTO, WEIGHTS
from collage.backends.contract.errors import OutputError
from collage.backends.link import library_requirements
from collage.backends.storage import OwnFolder, scratch_parent
from collage.backends.storage.log_url import LogUrl
from collage.config import Config
from collage.cost.database import Database, log_place, open_database
from collage.cost.progress import ProgressCallback, ProgressEvent, ignore
from collage.cost.workload.shared_weights import MappedWeights
from collage.targets import TargetLike, resolve_targets


@dataclass(frozen=True)
class Session:
    """What all stages of one optimization share.

    Attributes
    ----------
    targets : TargetSet
        What the user gave, validated.
    context : BuildContext
        Cache and scratch folders, threads, compiler, denormals, log of tuning.
    database : Database
        The log; in memory where the user gave none.
    folder : OwnFolder
        The scratch folder, which goes with the last who refers to it.
    weights : MappedWeights
        Of the models that are searched.
    progress : callable
        Informed of every step.

    Examples
    --------
    >>> session = open_session(["llvm", "onednn"])
    >>> session.targets.names, session.replay, len(session.database)
    (('tvm', 'onednn'), False, 0)
    """

    targets: TargetSet
    context: BuildContext
    database: Database
    folder: OwnFolder = field(repr=False)
    weights: MappedWeights = field(repr=False)
    progress: ProgressCallback = ignore

    @property
    def replay(self) -> bool:
        """Whether nothing may be measured or tuned that the log does not hold."""
        return self.context.replay


def open_session(
    targets: Sequence[TargetLike] | None,
    *,
    log: str | Path | None = None,
    replay: bool = False,
    num_threads: int | None = None,
    ieee_denormals: bool = False,
    weights: str = AUTO,
    hurried: bool = False,
    progress: ProgressCallback | None = None,
) -> Session:
    """Resolve the targets and open the log.

    Parameters
    ----------
    targets : sequence or None
        As the user wrote them.
    log : path or str, optional
        The log: a file, or the URL of a database.
    replay : bool
        Measure nothing and leave the log as it is.
    num_threads : int, optional
        Threads of every backend's kernels; by default the environment's.
    ieee_denormals : bool
        Whether they compute with denormal numbers.
    weights : str
        Where libraries have their weights.
    hurried : bool
        Whether backends are to choose among their most promising kernels alone.
    progress : callable, optional
        Informed of every step, and what is wrong with the log's lines.

    Returns
    -------
    Session
        With a scratch folder of its own, which goes with it.

    Raises
    ------
    OutputError
        When ``weights`` is no such place.
    TargetError
        On unknown targets, and on those whose libraries one process cannot load together.
    LogError
        When the log cannot be read, or not written where that is wanted.

    Examples
    --------
    >>> open_session(["llvm"], num_threads=2).context.num_threads
    2
    >>> open_session(["vax"])
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.TargetError: ...
    """
    if weights not in WEIGHTS:
        raise OutputError(
            f"weights is '{weights}', and has to be one of {', '.join(WEIGHTS)}", value=weights
        )
    resolved = resolve_targets(targets)
    # Refuses targets whose libraries clash, before any work is done.
    library_requirements(resolved)
    config = Config.from_environment()
    place = log_place(log) if log is not None else None
    database = open_database(place, read_only=replay)
    folder = OwnFolder(scratch_parent())
    # Locks of what lies in it lie beside it.
    work_dir = folder.path / "work"
    work_dir.mkdir()
    context = BuildContext(
        config.cache_dir,
        work_dir,
        config.num_threads if num_threads is None else num_threads,
        config.cxx,
        ieee_denormals,
        tuning_log=place if isinstance(place, Path) else None,
        replay=replay,
        tuning_database=place.secret if isinstance(place, LogUrl) else None,
        hurried=hurried,
        weights=weights,
    )
    progress = ignore if progress is None else progress
    for problem in database.problems:
        progress(ProgressEvent("log", 0, 0, f"{database.name}: {problem}; skipped"))
    return Session(resolved, context, database, folder, MappedWeights(work_dir), progress)
