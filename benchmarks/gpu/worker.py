"""The process a contender runs in: JSON requests, JSON answers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu import networks
from benchmarks.gpu.engines import engine_of
from benchmarks.gpu.engines.base import Job, Missing, Timer
from benchmarks.gpu.engines.torch_engine import EagerEngine
from benchmarks.timing.child import serve
from collage.backends.toolchain.children.child_boot import Line


def main(
    line: Line,
    name: str,
    model: str,
    batch: str,
    weights: str,
    work_dir: str,
    device: str,
    dtype: str,
) -> None:
    """Answer requests until there are no more."""
    job = Job(model, int(batch), Path(weights), Path(work_dir), device, dtype)
    serve(line, Worker(name, job).answer)


class Worker:
    """One engine on one model."""

    def __init__(self, engine: str, job: Job) -> None:
        self._engine = engine_of(engine)
        self._job = job
        self._timer: Timer | None = None
        self._session: Any = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what ``request["do"]`` names."""
        match request["do"]:
            case "build":
                return self._build(int(request["seed"]))
            case "reference":
                outputs, dtype = EagerEngine().reference(self._job)
                np.savez(request["path"], *outputs)
                return {"dtype": dtype}
            case "prepare":
                return self._engine.prepare(self._job, request["options"])
            case "load":
                return self._load()
            case "outputs":
                self._session.call()
                np.savez(request["path"], *self._session.outputs())
                return {}
            case "time":
                assert self._timer is not None
                return self._timer.turn(float(request["turn_sec"]), int(request["samples"]))
            case other:
                raise ValueError(f"unknown request '{other}'")

    def _build(self, seed: int) -> dict[str, Any]:
        job = self._job
        module = networks.build(job.model, seed)
        generator = torch.Generator().manual_seed(seed)
        inputs = networks.network(job.model).inputs(job.batch, generator)
        networks.save(module, inputs, job.weights, job.torch_dtype)
        return {}

    def _load(self) -> dict[str, Any]:
        begin = time.perf_counter()
        try:
            self._session = self._engine.load(self._job)
        except Missing as err:
            return {"missing": str(err)}
        self._session.call()
        self._timer = Timer(self._session, self._job.device)
        if self._job.device == "cuda":
            torch.cuda.synchronize()
        return {"load_sec": time.perf_counter() - begin, **self._session.figures()}
