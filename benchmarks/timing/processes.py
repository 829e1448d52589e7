"""One engine in a process of its own, stopped while others are timed.

Thread pools spin for a while after a call, waiting for the next one; on a few cores a neighbour's
idle pool costs more than the work that is measured. Turning spinning off would slow an engine
down in its own turn. So every engine keeps its best setting, and its whole process group is stopped
(SIGSTOP) whenever it is not its turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.engines import ENGINES, CollageEngine
from benchmarks.engines.base import Array, EngineMissingError, Job
from benchmarks.timing.child import OPENMP_DEFAULT, ChildError, JsonChild

EngineError = ChildError
"""The engine failed, died or hung; the message is one line."""


@dataclass(frozen=True)
class Turn:
    """How long one engine is run before the next one's turn.

    Attributes
    ----------
    settle_sec : float
        Untimed calls first, for at least this long.
    turn_sec : float
        Timed calls, for at least this long and at least ``min_calls`` of them.
    min_calls : int
    """

    settle_sec: float = 0.15
    turn_sec: float = 0.5
    min_calls: int = 3


class EngineProcess(JsonChild):
    """A worker process; use as a context manager, it is killed at the end whatever happens.

    Raises
    ------
    EngineError
        From every method, when the engine fails, its process ends or the time limit passes; after
        the latter it may still be at work, and can only be closed.
    EngineMissingError
        When the engine is not installed.
    """

    def __init__(self, engine: str, job: Job) -> None:
        self.engine = engine
        log = job.work_dir / f"{engine.replace(':', '-')}.stderr"
        threads = str(job.threads)
        environment = dict.fromkeys(
            ("OMP_NUM_THREADS", "COLLAGE_NUM_THREADS", "TVM_NUM_THREADS"), threads
        )
        if not issubclass(ENGINES[engine], CollageEngine):
            environment |= OPENMP_DEFAULT
        arguments = [engine, str(job.model), str(job.work_dir), threads]
        super().__init__("benchmarks.engines.worker", arguments, log, environment)
        self._outputs = log.with_suffix(".npz")

    def versions(self) -> dict[str, str]:
        """Versions of the engine's libraries."""
        return dict(self.ask({"do": "versions"}, limit_sec=120.0)["versions"])

    def prepare(self, limit_sec: float) -> dict[str, float]:
        """Build ahead; returns figures worth reporting."""
        return dict(self.ask({"do": "prepare"}, limit_sec)["figures"])

    def load(self, seed: int, limit_sec: float) -> float:
        """Load the model with seeded inputs and run it once; returns the seconds that took."""
        return float(self.ask({"do": "load", "seed": seed}, limit_sec)["load_sec"])

    def outputs(self, limit_sec: float = 300.0) -> list[Array]:
        """The outputs of one call."""
        self.ask({"do": "outputs", "path": str(self._outputs)}, limit_sec)
        with np.load(self._outputs, allow_pickle=False) as arrays:
            return [arrays[name] for name in arrays.files]

    def time(self, turn: Turn, limit_sec: float = 300.0) -> list[float]:
        """Seconds of each call of one turn."""
        return list(self.ask({"do": "time", "turn": vars(turn)}, limit_sec)["samples_sec"])

    def ask(self, request: Mapping[str, Any], limit_sec: float) -> dict[str, Any]:
        answer = super().ask(request, limit_sec)
        if "missing" in answer:
            raise EngineMissingError(answer["missing"])
        return answer
