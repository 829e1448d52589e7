"""This project, its backends alone, and what a greedy partitioning gives."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks.engines.base import Array, Engine, EngineMissingError, Job, Session

_BACKENDS = ("onednn", "openblas")


class CollageEngine(Engine):
    """Optimize once, export a bundle, and in the timed process only load the bundle."""

    name = "collage"
    settings = "`collage.optimize` over llvm, onednn and openblas; the search starts with no log"
    strategy: ClassVar[str] = "search"
    targets: ClassVar[tuple[str, ...]] = ("llvm", *_BACKENDS)

    def versions(self) -> dict[str, str]:
        from importlib.metadata import version

        from collage.backends.contract.registry import get_backend

        versions = {name: version(name) for name in ("apache-tvm", "apache-tvm-ffi")}
        for name in self.targets[1:]:
            available = get_backend(name).probe()
            if not available.usable:
                raise EngineMissingError(f"{available.reason}; {available.remedy}")
            versions.update(available.versions)
        return versions

    def prepare(self, job: Job) -> dict[str, float]:
        from collage.pipeline.optimize import optimize

        bundle = self.bundle(job)
        if bundle.exists():
            return {}
        start = time.perf_counter()
        # One log for all of them: what the search has measured, the others need not.
        result = optimize(
            job.model,
            list(self.targets),
            log=self.log_file(job),
            strategy=self.strategy,
            num_threads=job.threads,
        )
        prepare_sec = time.perf_counter() - start
        result.export(bundle)
        return {"prepare_sec": prepare_sec}

    def load(self, job: Job, inputs: Mapping[str, Array]) -> Session:
        import collage

        return _Loaded(collage.load(self.bundle(job)), inputs)

    @classmethod
    def bundle(cls, job: Job) -> Path:
        """Where the bundle is; one that exists is used as it is."""
        return job.work_dir / f"bundle-{cls.name.replace(':', '-')}"

    @staticmethod
    def log_file(job: Job) -> Path:
        """The log of every strategy on this model."""
        return job.work_dir / f"{job.model.stem}.jsonl"


class OneDnnEngine(CollageEngine):
    """oneDNN wherever it can, TVM for the rest."""

    name = "single:onednn"
    settings = "oneDNN wherever its patterns match, our TVM schedules for the rest"
    strategy = "single:onednn"
    targets = ("llvm", "onednn")


class OpenBlasEngine(CollageEngine):
    """OpenBLAS wherever it can, TVM for the rest."""

    name = "single:openblas"
    settings = "OpenBLAS wherever its patterns match, our TVM schedules for the rest"
    strategy = "single:openblas"
    targets = ("llvm", "openblas")


class GreedyEngine(CollageEngine):
    """What TVM's own BYOC partitioning makes of the same pattern tables."""

    name = "greedy"
    settings = "TVM's FuseOpsByPattern and MergeCompositeFunctions, backends in the targets' order"
    strategy = "greedy"


class TvmEngine(CollageEngine):
    """TVM alone with this project's schedules: TVM's defaults are a hundred times slower."""

    name = "single:tvm"
    settings = "TVM alone, with our CPU schedules"
    strategy = "single:tvm"
    targets = ("llvm",)


class _Loaded(Session):
    def __init__(self, bundle: Any, inputs: Mapping[str, Array]) -> None:
        import tvm

        # By position: an ONNX input's name need not be a Python identifier.
        ordered = [inputs[_match(info.name, inputs)] for info in bundle.inputs]
        self._bundle = bundle
        self._tensors = [tvm.runtime.tensor(np.ascontiguousarray(array)) for array in ordered]
        self._result: list[Any] = []

    def call(self) -> None:
        self._result = self._bundle.compute(self._tensors)

    def outputs(self) -> list[Array]:
        return [tensor.numpy() for tensor in self._result]


def _match(name: str, inputs: Mapping[str, Array]) -> str:
    """The model's input that an importer may have renamed: only letters and digits count."""
    if name in inputs:
        return name
    return next(given for given in inputs if _letters(given) == _letters(name))


def _letters(name: str) -> str:
    return "".join(c for c in name if c.isalnum())
