"""What an engine has to do to be timed on a GPU."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray

Array = NDArray[Any]


class Missing(Exception):
    """The engine is not available here; the message says why."""


@dataclass(frozen=True)
class Job:
    """What to run and where.

    Attributes
    ----------
    model : str
        One of ``benchmarks.gpu.networks.NETWORKS``.
    batch : int
    weights : Path
        Of :func:`benchmarks.gpu.networks.save`, with the inputs.
    work_dir : Path
        For what engines build for this model and batch size.
    device : str
        ``cuda``; ``cpu`` in a rehearsal.
    dtype : str
        ``float16``; ``float32`` in a rehearsal.
    """

    model: str
    batch: int
    weights: Path
    work_dir: Path
    device: str
    dtype: str

    @property
    def torch_dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype


class Session(ABC):
    """A loaded model with its inputs in place."""

    asynchronous: ClassVar[bool] = True
    """Whether calls only enqueue work on the current stream; else they wait for the result."""

    @abstractmethod
    def call(self) -> None:
        """Run the model once."""

    @abstractmethod
    def outputs(self) -> list[Array]:
        """The outputs of the last call."""

    def figures(self) -> dict[str, Any]:
        """What is worth reporting, for example which settings were chosen."""
        return {}


class Engine(ABC):
    """One contender. What it needs is imported in its methods only."""

    settings: ClassVar[str]
    """How it is set up, for the results' reader."""

    def prepare(self, job: Job, options: dict[str, Any]) -> dict[str, Any]:
        """Build what can be built ahead; figures worth reporting."""
        return {}

    @abstractmethod
    def load(self, job: Job) -> Session:
        """Make the model ready to be called.

        Raises
        ------
        Missing
            When the engine is not available.
        """


class Timer:
    """Times calls of a session in batches.

    Where a processor's engines are kept to one core, the time of the process itself counts, which
    another program's load does not lengthen but for what it takes of the caches.
    """

    def __init__(self, session: Session, device: str) -> None:
        self._session = session
        self._events = device == "cuda" and session.asynchronous
        self._device = device
        alone = device == "cpu" and len(os.sched_getaffinity(0)) == 1
        self._clock = time.process_time if alone else time.perf_counter

    def seconds(self, calls: int) -> tuple[float, float]:
        """Seconds per call between two events around ``calls`` calls, and by the host's clock.

        The host's clock includes waiting for the last call; where there is no stream to put events
        on, it is the only one and given twice.
        """
        call = self._session.call
        self._synchronize()
        if not self._events:
            begin = self._clock()
            for _ in range(calls):
                call()
            self._synchronize()
            wall_sec = (self._clock() - begin) / calls
            return wall_sec, wall_sec
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin = time.perf_counter()
        first.record()
        for _ in range(calls):
            call()
        last.record()
        last.synchronize()
        self._synchronize()
        wall_sec = (time.perf_counter() - begin) / calls
        return first.elapsed_time(last) * 1e-3 / calls, wall_sec

    def turn(self, turn_sec: float, samples: int) -> dict[str, float]:
        """One turn: a warm-up, then ``samples`` batches that take ``turn_sec`` together.

        Returns
        -------
        dict
            Medians of the batches: ``event_sec`` and ``wall_sec`` per call; and ``calls``.
        """
        _, once = self.seconds(1)
        _, once = self.seconds(max(1, min(20, int(0.01 / max(once, 1e-6)))))
        calls = max(1, int(turn_sec / samples / max(once, 1e-6)))
        self.seconds(calls)
        taken = [self.seconds(calls) for _ in range(samples)]
        event_sec, wall_sec = (sorted(column)[samples // 2] for column in zip(*taken, strict=True))
        return {"event_sec": event_sec, "wall_sec": wall_sec, "calls": float(calls)}

    def _synchronize(self) -> None:
        if self._device == "cuda":
            torch.cuda.synchronize()
