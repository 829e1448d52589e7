"""One engine in a process of its own, stopped while others are timed.

Thread pools spin for a while after a call, waiting for the next one; on a few cores a neighbour's
idle pool costs more than the work that is measured. Turning spinning off would slow an engine
down in its own turn. So every engine keeps its best setting, and its whole process group is stopped
(SIGSTOP) whenever it is not its turn.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engines.base import Array, EngineMissingError, Job

_ROOT = Path(__file__).resolve().parents[1]


class EngineError(Exception):
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


class EngineProcess:
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
        job.work_dir.mkdir(parents=True, exist_ok=True)
        self.engine = engine
        self._log = job.work_dir / f"{engine.replace(':', '-')}.stderr"
        threads = str(job.threads)
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": threads,
            "COLLAGE_NUM_THREADS": threads,
            "TVM_NUM_THREADS": threads,
        }
        arguments = [engine, str(job.model), str(job.work_dir), threads]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.engines.worker", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                cwd=_ROOT,
                env=environment,
                start_new_session=True,  # its own group: stopped and killed with its children
            )
        self._buffer = b""

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Of the worker, and of its process group."""
        return self._process.pid

    def versions(self) -> dict[str, str]:
        """Versions of the engine's libraries."""
        return dict(self._ask({"do": "versions"}, limit_sec=120.0)["versions"])

    def prepare(self, limit_sec: float) -> dict[str, float]:
        """Build ahead; returns figures worth reporting."""
        return dict(self._ask({"do": "prepare"}, limit_sec)["figures"])

    def load(self, seed: int, limit_sec: float) -> float:
        """Load the model with seeded inputs and run it once; returns the seconds that took."""
        return float(self._ask({"do": "load", "seed": seed}, limit_sec)["load_sec"])

    def outputs(self, limit_sec: float = 300.0) -> list[Array]:
        """The outputs of one call."""
        path = self._log.with_suffix(".npz")
        self._ask({"do": "outputs", "path": str(path)}, limit_sec)
        with np.load(path, allow_pickle=False) as arrays:
            return [arrays[name] for name in arrays.files]

    def time(self, turn: Turn, limit_sec: float = 300.0) -> list[float]:
        """Seconds of each call of one turn."""
        return list(self._ask({"do": "time", "turn": vars(turn)}, limit_sec)["samples_sec"])

    def pause(self) -> None:
        """Stop all its threads until :meth:`resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it run again."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End the process group."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def _ask(self, request: dict[str, Any], limit_sec: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
        except BrokenPipeError as err:
            raise EngineError(self._how_it_ended()) from err
        answer: dict[str, Any] = json.loads(self._read_line(limit_sec))
        if "missing" in answer:
            raise EngineMissingError(answer["missing"])
        if "error" in answer:
            raise EngineError(" ".join(str(answer["error"]).split())[:300])
        return answer

    def _read_line(self, limit_sec: float) -> bytes:
        assert self._process.stdout is not None
        end = time.monotonic() + limit_sec
        while b"\n" not in self._buffer:
            left = max(0.0, end - time.monotonic())
            ready, _, _ = select.select([self._process.stdout], [], [], left)
            if not ready:
                raise EngineError(f"no answer within {limit_sec:.0f} s")
            data = os.read(self._process.stdout.fileno(), 1 << 20)
            if not data:
                raise EngineError(self._how_it_ended())
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _how_it_ended(self) -> str:
        code = self._process.wait()
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return f"process ended with {code}: {lines[-1][:200] if lines else 'no message'}"
