"""What backends found by timing their kernels: shared by partitions, models, processes, machines.

A finding goes into the user's log, beside the measurements, and into a file of the machine's cache
folder. The log is asked first. What only the cache knows is added to the log, so that the log alone
tells how everything in it was compiled.

A key holds what is known without a GPU; what the device is stands beside it. So a log serves a
machine that has none.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from collage.backends.contract.base import BuildContext
from collage.backends.contract.errors import LogError, ReplayMissError
from collage.backends.storage.line_file import append_line, opened, read_from

KIND = "tuning"
"""``kind`` of a log's records that are findings, not measurements."""

CACHE_FILE = "tuning/kernels.jsonl"


@dataclass(frozen=True)
class TuningRecord:
    """One finding.

    Attributes
    ----------
    backend : str
        Whose it is.
    schema : int
        Version of what that backend writes.
    key : mapping
        Everything it depends on that is known without a GPU: problem, versions, options.
    device : mapping
        What it was found on, at least ``name`` and ``compute_capability`` (for example 90).
    result : mapping
        What was found, in the backend's terms.
    """

    backend: str
    schema: int
    key: Mapping[str, Any]
    device: Mapping[str, Any]
    result: Mapping[str, Any]

    def to_json(self) -> str:
        """One line of JSON, without its end."""
        value = {
            "kind": KIND,
            "backend": self.backend,
            "schema": self.schema,
            "key": self.key,
            "device": self.device,
            "result": self.result,
        }
        return json.dumps(value, allow_nan=False)

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> TuningRecord:
        """From a line's parsed JSON.

        Raises
        ------
        ValueError
            When a field is missing or of the wrong type; says which.
        """
        types = {"backend": str, "schema": int, "key": dict, "device": dict, "result": dict}
        for name, wanted in types.items():
            if not isinstance(value.get(name), wanted):
                raise ValueError(f"has no valid '{name}'")
        return cls(**{name: value[name] for name in types})

    @property
    def question(self) -> str:
        """What it answers, as canonical text."""
        return _question(self.backend, self.schema, self.key)

    @property
    def identity(self) -> str:
        """What it answers and for which device, as canonical text; the last of equals counts."""
        return json.dumps([self.question, self.device], sort_keys=True)


@dataclass
class _Place:
    """A file of findings, as last read; the last one of equals counts."""

    path: Path
    records: list[TuningRecord] = field(default_factory=list)
    by_question: dict[str, list[TuningRecord]] = field(default_factory=dict)

    def refresh(self) -> None:
        self.records = read_findings(self.path)
        self.by_question = {}
        for record in self.records:
            self.by_question.setdefault(record.question, []).append(record)

    def append(self, record: TuningRecord) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as err:
            raise LogError(
                f"folder '{self.path.parent}' cannot be made: {err.strerror}", value=str(self.path)
            ) from err
        with opened(self.path, read_only=False) as handle:
            append_line(handle, record.to_json())
        self.records.append(record)
        self.by_question.setdefault(record.question, []).append(record)

    def find(self, question: str, device: Mapping[str, Any]) -> TuningRecord | None:
        found = reversed(self.by_question.get(question, ()))
        return next((r for r in found if device.items() <= r.device.items()), None)


class TuningLog:
    """One backend's findings.

    Parameters
    ----------
    backend : str
        Whose findings these are.
    schema : int
        Records of another version are passed over.
    cache : Path
        The machine's file.
    log : Path, optional
        The user's log.
    replay : bool
        Add nothing to either file.

    Raises
    ------
    LogError
        When a file that is there cannot be read.
    """

    def __init__(
        self,
        backend: str,
        schema: int,
        cache: Path,
        log: Path | None = None,
        *,
        replay: bool = False,
    ) -> None:
        self.replay = replay
        self._backend, self._schema = backend, schema
        self._log = None if log is None else _Place(log)
        self._cache = _Place(cache)
        self.refresh()

    @classmethod
    def of(cls, backend: str, schema: int, context: BuildContext) -> TuningLog:
        """The findings that a compilation uses and adds to."""
        cache = context.cache_dir / CACHE_FILE
        return cls(backend, schema, cache, context.tuning_log, replay=context.replay)

    @property
    def _places(self) -> list[_Place]:
        return [self._cache] if self._log is None else [self._log, self._cache]

    def refresh(self) -> None:
        """Read what was found meanwhile."""
        for place in self._places:
            place.refresh()

    def find(self, key: Mapping[str, Any], device: Mapping[str, Any]) -> TuningRecord | None:
        """What was found for a key, on a device of which these facts are known.

        Raises
        ------
        LogError
            When the log cannot be written that lacks what the cache knows.
        """
        question = _question(self._backend, self._schema, key)
        for place in self._places:
            record = place.find(question, device)
            if record is not None:
                if self._log is not None and place is self._cache and not self.replay:
                    self._log.append(record)
                return record
        return None

    def append(
        self, key: Mapping[str, Any], device: Mapping[str, Any], result: Mapping[str, Any]
    ) -> None:
        """Add a finding to the log and to the cache.

        Raises
        ------
        LogError
            When one of them cannot be written, or this is a replay.
        """
        if self.replay:
            raise LogError("a replay finds nothing new", value=dict(key))
        for place in self._places:
            place.append(TuningRecord(self._backend, self._schema, key, device, result))

    @contextmanager
    def alone(
        self, keys: Iterable[Mapping[str, Any]], *, patient: bool = True
    ) -> Iterator[list[bool]]:
        """Keep others of this machine from tuning the same, and read what they have found.

        Whoever waits here for another one finds the answer in the log afterwards.

        Parameters
        ----------
        patient : bool
            Wait for those that others are tuning; else leave these to them.

        Yields
        ------
        list of bool
            Which of the keys are held; all, when patient.
        """
        names = [self._lock_name(key) for key in keys]
        folder = self._cache.path.parent / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        held = set()
        with ExitStack() as stack:
            # In one order for all: two processes that each wait for the other's would wait forever.
            for name in sorted(set(names)):
                lock = FileLock(folder / f"{name}.lock", timeout=-1 if patient else 0)
                with suppress(Timeout):
                    stack.enter_context(lock)
                    held.add(name)
            self.refresh()
            yield [name in held for name in names]

    def _lock_name(self, key: Mapping[str, Any]) -> str:
        question = _question(self._backend, self._schema, key)
        return hashlib.sha256(question.encode()).hexdigest()[:16]

    def device_elsewhere(self, compute_capability: int) -> dict[str, Any] | None:
        """What to look for where no such GPU is: the one that was tuned on last.

        The log's last record of a GPU with that compute capability names it, whichever backend's;
        without one, the cache's. None when neither has any.
        """
        for place in self._places:
            for record in reversed(place.records):
                if record.device.get("compute_capability") == compute_capability:
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
        """
        return ReplayMissError(
            f"neither the log nor the cache holds {self._backend}'s tuning of {problem} for this "
            f"GPU and these versions ({count} such); without a replay it is measured",
            value=problem,
        )


def read_findings(path: Path) -> list[TuningRecord]:
    """The findings in a file; measurements are passed over, what is torn with a warning.

    Raises
    ------
    LogError
        When the file is there and cannot be read.
    """
    if not path.is_file():
        return []
    with opened(path, read_only=True) as handle:
        lines = read_from(handle, 0).split(b"\n")
    found = []
    for number, line in enumerate(lines, 1):
        # A log is mostly measurements, which are long: they need not be parsed.
        torn = bool(line.strip()) and not line.rstrip().endswith(b"}")
        if not torn and f'"{KIND}"'.encode() not in line:
            continue
        try:
            value = json.loads(line)
            if isinstance(value, dict) and value.get("kind") == KIND:
                found.append(TuningRecord.from_value(value))
        except ValueError:
            warnings.warn(f"{path}:{number}: a torn line is skipped", stacklevel=2)
    return found


def _question(backend: str, schema: int, key: Mapping[str, Any]) -> str:
    return json.dumps([backend, schema, key], sort_keys=True)
