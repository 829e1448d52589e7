"""The process an engine runs in: answers requests, one JSON object per line.

Started by :class:`benchmarks.timing.processes.EngineProcess`.
"""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.engines import ENGINES
from benchmarks.engines.base import EngineMissingError, Job, Session
from benchmarks.networks.models import random_inputs
from benchmarks.timing.child import serve
from collage.backends.toolchain.children.child_boot import Line


def main(line: Line, engine_name: str, model: str, work_dir: str, threads: str) -> None:
    """Answer requests until there are no more."""
    cores = sorted(os.sched_getaffinity(0))[: int(threads)]
    os.sched_setaffinity(0, cores)
    worker = Worker(engine_name, Job(Path(model), Path(work_dir), int(threads)))

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        try:
            return worker.answer(request)
        except EngineMissingError as err:
            return {"missing": str(err)}

    serve(line, answer)


class Worker:
    """One engine on one model."""

    def __init__(self, engine_name: str, job: Job) -> None:
        self._engine = ENGINES[engine_name]()
        self._job = job
        self._session: Session | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what ``request["do"]`` names."""
        match request["do"]:
            case "versions":
                return {"versions": self._engine.versions()}
            case "prepare":
                return {"figures": self._engine.prepare(self._job)}
            case "load":
                return self._load(int(request["seed"]))
            case "outputs":
                return self._save_outputs(Path(request["path"]))
            case "time":
                return {"samples_sec": self._time(**request["turn"])}
            case other:
                raise ValueError(f"unknown request '{other}'")

    def _load(self, seed: int) -> dict[str, Any]:
        model = onnx.load(self._job.model)
        inputs = random_inputs(model, seed)
        del model
        start = time.perf_counter()
        self._session = self._engine.load(self._job, inputs)
        self._session.call()
        return {"load_sec": time.perf_counter() - start}

    def _save_outputs(self, path: Path) -> dict[str, Any]:
        session = self._loaded()
        session.call()
        np.savez(path, *session.outputs())
        return {}

    def _time(self, settle_sec: float, turn_sec: float, min_calls: int) -> list[float]:
        """Seconds of each call of one turn, after untimed calls that wake threads and caches."""
        call = self._loaded().call
        end = time.perf_counter() + settle_sec
        call()
        while time.perf_counter() < end:
            call()
        samples: list[float] = []
        gc.disable()
        end = time.perf_counter() + turn_sec
        while len(samples) < min_calls or time.perf_counter() < end:
            start = time.perf_counter()
            call()
            samples.append(time.perf_counter() - start)
        gc.enable()
        return samples

    def _loaded(self) -> Session:
        if self._session is None:
            raise RuntimeError("asked to run before the model was loaded")
        return self._session
