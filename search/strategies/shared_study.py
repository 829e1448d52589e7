"""The study of a refinement, in memory or in storage that several processes share."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import optuna
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from collage.backends.contract.errors import LogError, SearchError
from collage.backends.storage.log_url import LogUrl, is_database_url, without_urls
from collage.search.dataflow import DataflowGraph

_TRIES = 6
_PAUSE_SEC = 0.2

_ABANDONED_AFTER = timedelta(hours=1)
"""A trial that is under way for so long has lost its process; what it tries may be tried again."""

_GRAPH = "graph"
_PARTITIONING = "partitioning"


class SharedStudy:
    """Trials of whole programs, each of them known by its partitioning, a line of text.

    Parameters
    ----------
    storage : str or None
        An Optuna storage URL, or the path of a journal file; None for memory.
    name : str
        Of the study; one that is there is continued.
    graph : DataflowGraph
        What all its partitionings cover.
    seed : int
        Of the sampler.

    Raises
    ------
    LogError
        When the storage's name is none, or a journal cannot be written.
    SearchError
        When the study is of another graph.
    """

    def __init__(self, storage: str | None, name: str, graph: DataflowGraph, seed: int) -> None:
        self._study = _opened(storage, name)
        digest = _digest(graph)
        if self._study.user_attrs.get(_GRAPH, digest) != digest:
            raise SearchError(
                f"study '{name}' is of another graph; name another study or storage", value=name
            )
        self._study.set_user_attr(_GRAPH, digest)
        done = len(self._trials())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            # What others are at counts as bad meanwhile, so that all look at different places. A
            # continued study must not propose the same again: another seed.
            self._study.sampler = optuna.samplers.TPESampler(
                seed=seed + done, n_startup_trials=8, constant_liar=True
            )

    def ask(self) -> optuna.Trial:
        """A new trial; nobody else has its number."""
        return self._study.ask()

    def finished(self) -> dict[str, float]:
        """Seconds of each partitioning that any process has measured so far."""
        return {
            trial.user_attrs[_PARTITIONING]: float(trial.user_attrs["seconds"])
            for trial in self._trials()
            if trial.state == TrialState.COMPLETE and "seconds" in trial.user_attrs
        }

    def under_way(self) -> set[str]:
        """Partitionings that processes are measuring."""
        return {trial.user_attrs[_PARTITIONING] for trial in self._running()}

    def claim(self, trial: optuna.Trial, text: str) -> bool:
        """Say what a trial is going to measure; no, where another one is at it or was.

        Of two who ask at the same time one or none gets a yes, never both.

        Parameters
        ----------
        trial : Trial
            From :meth:`ask`; it may claim something else after a no.
        text : str
            The partitioning.

        Returns
        -------
        bool
            True when nobody else measures the same partitioning, or did.
        """
        trial.set_user_attr(_PARTITIONING, text)
        same = {t.number for t in self._running() if t.user_attrs[_PARTITIONING] == text}
        return same <= {trial.number} and text not in self.finished()

    def tell(self, trial: optuna.Trial, seconds: float, move: str) -> None:
        """What was measured.

        Parameters
        ----------
        trial : Trial
            Whose partitioning was claimed.
        seconds : float
            May be infinite.
        move : str
            What led to it.
        """
        trial.set_user_attr("seconds", str(seconds))
        trial.set_user_attr("applied", move)
        # Optuna stores no infinity in every storage; a huge time says the same to its sampler.
        self._study.tell(trial, min(seconds, 1e9))

    def give_up(self, trial: optuna.Trial) -> None:
        """End a trial that measured nothing."""
        self._study.tell(trial, state=TrialState.FAIL)

    def _running(self) -> list[FrozenTrial]:
        since = datetime.now() - _ABANDONED_AFTER
        return [
            trial
            for trial in self._trials()
            if trial.state == TrialState.RUNNING
            and _PARTITIONING in trial.user_attrs
            and trial.datetime_start is not None
            and trial.datetime_start > since
        ]

    def _trials(self) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False)


def _opened(storage: str | None, name: str) -> optuna.Study:
    for left in reversed(range(_TRIES)):
        try:
            return optuna.create_study(
                storage=_storage(storage),
                study_name=name,
                direction="minimize",
                load_if_exists=True,
            )
        except Exception as err:
            # Two that begin at the same time both make the tables, and one of them fails.
            if not left or not _is_of_a_database(err):
                raise
            time.sleep(_PAUSE_SEC * (_TRIES - left))
    raise AssertionError("the last try returns or raises")


def _storage(storage: str | None) -> optuna.storages.BaseStorage | str | None:
    if storage is None:
        return None
    if not is_database_url(storage):
        try:
            return optuna.storages.JournalStorage(JournalFileBackend(storage))
        except OSError as err:
            raise LogError(
                f"storage '{storage}' of the refinement cannot be used: {err.strerror}",
                value=storage,
            ) from err
    if not storage.startswith(("sqlite", "postgresql")):
        return storage
    url = LogUrl(storage)
    # A file's other writers are waited for; of a server's connections each is tried out first.
    options = {"connect_args": {"timeout": 60}} if url.file else {"pool_pre_ping": True}
    return optuna.storages.RDBStorage(url.secret, engine_kwargs=options)


@contextmanager
def storage_errors(storage: str | None) -> Iterator[None]:
    """Makes one clear error of whatever a storage says, without its password.

    Raises
    ------
    LogError
        In place of the storage's own errors.
    """
    try:
        yield
    except Exception as err:
        if storage is None or not _is_of_a_database(err):
            raise
        name = without_urls(storage)
        lines = [line for line in str(getattr(err, "orig", None) or err).splitlines() if line]
        reason = without_urls(lines[0]) if lines else type(err).__name__
        # Not chained: what a driver says may hold what it was given.
        raise LogError(
            f"storage '{name}' of the refinement cannot be used: {reason}", value=name
        ) from None


def _is_of_a_database(err: Exception) -> bool:
    """Optuna brings SQLAlchemy, whose errors it lets through or wraps."""
    from sqlalchemy.exc import SQLAlchemyError

    return isinstance(err, SQLAlchemyError | optuna.exceptions.StorageInternalError)


def _digest(graph: DataflowGraph) -> str:
    nodes = [(graph.op_name(index), f"{graph.preds(index):x}") for index in range(len(graph))]
    return hashlib.sha256(json.dumps(nodes).encode()).hexdigest()
