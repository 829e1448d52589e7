"""What backends find out while they compile: shared by partitions, models, processes, machines.

A finding goes into the user's log, beside the measurements, and into a file of the machine's cache
folder. The log is asked first. What only the cache knows is added to the log, so that the log alone
tells how everything in it was compiled. Large parts of a finding, such as a library's serialized
plan, are blobs: named by their content, a line of its own in the log, a file in the cache folder.

A key holds what is known without the device; what the device is stands beside it. So a log serves a
machine that has none.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import LogError, ReplayMissError
from collage.backends.storage.findings_file import FindingsFile, findings_file
from collage.backends.storage.findings_place import findings_at, log_of
from collage.backends.storage.tuning_record import BlobReference, TuningRecord, question_digest
from collage.backends.toolchain.artifact_cache import replacing

if TYPE_CHECKING:
    from collage.backends.storage.findings_table import FindingsTable

CACHE_FILE = "tuning/kernels.jsonl"
"""The machine's findings, below its cache folder; blobs and locks lie beside it."""


class TuningStore:
    """One backend's findings.

    Parameters
    ----------
    backend : str
        Whose findings these are.
    schema : int
        Records of another version are passed over.
    cache : Path
        The machine's file.
    log : Path or str, optional
        The user's log: a file, or a database's URL.
    replay : bool
        Write nothing.

    Raises
    ------
    LogError
        When a file that is there cannot be read.

    Examples
    --------
    >>> store = TuningStore("mine", 1, Path("cache/kernels.jsonl"))
    >>> gpu = {"name": "NVIDIA H200", "compute_capability": 90}
    >>> store.append({"rows": 64}, gpu, {"algorithm": 3})
    >>> store.find({"rows": 64}, {"compute_capability": 90}).result
    {'algorithm': 3}
    >>> store.find({"rows": 65}, gpu) is None
    True
    """

    def __init__(
        self,
        backend: str,
        schema: int,
        cache: Path,
        log: Path | str | None = None,
        *,
        replay: bool = False,
    ) -> None:
        self.replay = replay
        self._backend, self._schema = backend, schema
        self._log = None if log is None else findings_at(log, replay)
        self._cache = findings_file(cache)
        self._reported: set[str] = set()
        self._held: dict[str, FileLock] = {}
        self.refresh()

    @classmethod
    def of(cls, backend: str, schema: int, context: BuildContext) -> TuningStore:
        """The findings that a compilation uses and adds to.

        Parameters
        ----------
        backend, schema
            As the constructor takes them.
        context : BuildContext
            Names the log and the cache folder.

        Returns
        -------
        TuningStore
            With the context's log, if it has one, and the cache of this machine.
        """
        cache = context.cache_dir / CACHE_FILE
        return cls(backend, schema, cache, log_of(context), replay=context.replay)

    @property
    def _places(self) -> list[FindingsFile | FindingsTable]:
        return [self._cache] if self._log is None else [self._log, self._cache]

    def refresh(self) -> None:
        """Read what was found meanwhile; lines that cannot be read are warned of.

        Raises
        ------
        LogError
            When a file that is there cannot be read.
        """
        for place in self._places:
            place.refresh()
            for problem in place.problems:
                if problem not in self._reported:
                    self._reported.add(problem)
                    warnings.warn(problem, stacklevel=2)

    def find(self, key: Mapping[str, Any], device: Mapping[str, Any]) -> TuningRecord | None:
        """What was found for a key.

        Parameters
        ----------
        key : mapping
            All of it counts.
        device : mapping
            The facts that are known of the device; a finding's may tell more.

        Returns
        -------
        TuningRecord or None
            From the first place that has one; None where none has.

        Raises
        ------
        LogError
            When the log cannot be written that lacks what the cache knows.
        """
        question = question_digest(self._backend, self._schema, key)
        for place in self._places:
            record = place.find(question, device)
            if record is not None:
                if place is self._cache and not self.replay:
                    self._copy_to_log(record)
                return record
        return None

    def _copy_to_log(self, record: TuningRecord) -> None:
        if self._log is None:
            return
        for reference in record.blobs():
            data = self.blob(reference)
            if reference.in_log and data is not None and not self._log.has_blob(reference):
                self._log.append_blob(data)
        self._log.append(record)

    def append(
        self, key: Mapping[str, Any], device: Mapping[str, Any], result: Mapping[str, Any]
    ) -> None:
        """Add a finding to the log and to the cache.

        Parameters
        ----------
        key : mapping
            What it answers.
        device : mapping
            What it was found on.
        result : mapping
            What was found; large parts as :meth:`keep` names them.

        Raises
        ------
        LogError
            When one of them cannot be written, or this is a replay.
        """
        self._refuse_in_replay(dict(key))
        record = TuningRecord(self._backend, self._schema, key, device, result)
        for place in self._places:
            place.append(record)
        # Whoever waits for this one alone need not wait for the rest of a claim.
        if lock := self._held.get(_lock_name(record.question)):
            lock.release()

    def keep(self, data: bytes, *, in_log: bool = True) -> dict[str, Any]:
        """Keep bytes that a finding is going to refer to.

        Parameters
        ----------
        data : bytes
            Kept in the cache folder.
        in_log : bool
            In the log too.

        Returns
        -------
        dict
            What stands for them in the finding's result; :meth:`blob` takes it.

        Raises
        ------
        LogError
            When they cannot be written, or this is a replay.
        """
        reference = BlobReference.of(data, in_log=in_log)
        self._refuse_in_replay(reference.sha256)
        path = self._blob_path(reference)
        if not path.exists():
            with replacing(path) as partial:
                partial.write_bytes(data)
        if self._log is not None and in_log and not self._log.has_blob(reference):
            self._log.append_blob(data)
        return reference.to_value()

    def blob(self, reference: BlobReference | None) -> bytes | None:
        """The bytes of a finding, from the log or from the cache; None where both lack them."""
        if reference is None:
            return None
        data = None if self._log is None else self._log.blob(reference)
        path = self._blob_path(reference)
        if data is None and path.is_file():
            data = path.read_bytes()
        return data if data is not None and reference.is_of(data) else None

    def _blob_path(self, reference: BlobReference) -> Path:
        return self._cache.path.parent / "blobs" / reference.sha256

    def _refuse_in_replay(self, value: object) -> None:
        if self.replay:
            raise LogError("a replay finds nothing new", value=value)

    @contextmanager
    def claim(
        self, keys: Iterable[Mapping[str, Any]], *, patient: bool = True
    ) -> Iterator[list[bool]]:
        """Keep others of this machine from tuning the same, and read what they have found.

        Whoever waits here for another one finds the answer in the log afterwards. A key is free
        again as soon as its finding is added.

        Parameters
        ----------
        keys : iterable of mapping
            What is going to be found out.
        patient : bool
            Wait for those that others are tuning; else leave these to them.

        Yields
        ------
        list of bool
            Which of the keys are held; all, when patient.
        """
        names = [_lock_name(question_digest(self._backend, self._schema, key)) for key in keys]
        folder = self._cache.path.parent / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            stack.callback(self._held.clear)
            # In one order for all: two processes that each wait for the other's would wait forever.
            for name in sorted(set(names)):
                lock = FileLock(folder / f"{name}.lock", timeout=-1 if patient else 0)
                with suppress(Timeout):
                    lock.acquire()
                    stack.callback(lock.release)
                    self._held[name] = lock
            self.refresh()
            yield [name in self._held for name in names]

    def device_elsewhere(self, compute_capability: int) -> dict[str, Any] | None:
        """What to look for where no such GPU is: the one that was tuned on last.

        The log's last record of a GPU with that compute capability names it, whichever backend's;
        without one, the cache's. None when neither has any.
        """
        for place in self._places:
            record = place.last_on(compute_capability)
            if record is not None:
                name = record.device.get("name")
                return {"name": name, "compute_capability": compute_capability}
        return None

    def miss(self, problem: str, count: int) -> ReplayMissError:
        """The error for a strict replay that asks for what nobody has found.

        Parameters
        ----------
        problem : str
            The first of them, in words.
        count : int
            How many there are.

        Returns
        -------
        ReplayMissError
            To be raised; its ``value`` is the problem.
        """
        return ReplayMissError(
            f"neither the log nor the cache holds {self._backend}'s tuning of {problem} for this "
            f"device and these versions ({count} such); without a replay it is measured",
            value=problem,
        )


def _lock_name(question: str) -> str:
    return question[:16]


def read_findings(path: Path) -> list[TuningRecord]:
    """The findings in a file; measurements are passed over, what is torn with a warning.

    Raises
    ------
    LogError
        When the file is there and cannot be read.

    Examples
    --------
    >>> path = Path("kernels.jsonl")
    >>> TuningStore("mine", 1, path).append({"rows": 64}, {"name": "NVIDIA H200"}, {"algorithm": 3})
    >>> [(found.backend, found.result) for found in read_findings(path)]
    [('mine', {'algorithm': 3})]
    """
    found = FindingsFile(path)
    found.refresh()
    for problem in found.problems:
        warnings.warn(problem, stacklevel=2)
    return found.records()
