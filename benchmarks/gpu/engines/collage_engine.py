"""This project: one search, then every partitioning that it compared, as bundles."""

from __future__ import annotations

import json
import math
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu import networks
from benchmarks.gpu.engines.base import Array, Engine, Job, Session
from benchmarks.operators.worker import to_numpy
from benchmarks.timing.lateness import told_where_it_is

CHOSEN = "collage"


class CollageEngine(Engine):
    """One partitioning of the model; ``collage`` is the one that was chosen."""

    settings = "`collage.optimize` over the exported program; the bundle it exports"

    def __init__(self, name: str) -> None:
        self._name = name

    def prepare(self, job: Job, options: dict[str, Any]) -> dict[str, Any]:
        """Search, and export a bundle of every distinct partitioning.

        Parameters
        ----------
        options : dict
            ``targets``, ``log``, ``time_budget_sec``; ``alternatives``: whether the partitionings
            that were not chosen are exported too.

        Returns
        -------
        dict
            ``bundles`` (by name; those that came out the same share one), and what the search did.
        """
        begin = time.perf_counter()
        module, inputs = networks.load(job.model, job.weights, job.torch_dtype)
        program = networks.export(module, inputs)
        export_sec = time.perf_counter() - begin
        bundles: dict[str, str] = {}
        failures: dict[str, str] = {}
        figures = {"bundles": bundles, "failures": failures, "export_sec": export_sec}
        begin = time.perf_counter()
        stages = Stages()
        with told_where_it_is(1.1 * (options["time_budget_sec"] or math.inf)):
            result, reason = _optimize(program, "search", options, stages)
        figures["prepare_sec"] = time.perf_counter() - begin
        figures["stages_sec"] = stages.began_sec
        if result is None:
            failures[CHOSEN] = reason
            if options["alternatives"]:
                _without_search(program, job, options, bundles, failures)
            return figures
        bundles[CHOSEN] = str(result.export(_folder(job.work_dir, CHOSEN)))
        if options["alternatives"]:
            _export_alternatives(result, job.work_dir, bundles, failures)
        return {**figures, **_summary(result)}

    def load(self, job: Job) -> Session:
        import collage

        bundles = json.loads((job.work_dir / "bundles.json").read_text(encoding="utf-8"))
        _, inputs = networks.load(job.model, job.weights, job.torch_dtype)
        return _Loaded(collage.load(Path(bundles[self._name])), [to_numpy(x) for x in inputs], job)


class Stages:
    """Informed of progress: shows it, and keeps when each stage was first heard of."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self.began_sec: dict[str, float] = {}

    def __call__(self, event: Any) -> None:
        now_sec = time.perf_counter() - self._begin
        self.began_sec.setdefault(event.stage, round(now_sec, 1))
        progress = f"{event.stage} {event.done}/{event.total} {event.message}"
        print(f"[{now_sec:.1f} s] {progress}", flush=True)


def _optimize(
    program: Any, strategy: str, options: dict[str, Any], stages: Stages
) -> tuple[Any, str]:
    """The result; or none, and the reason."""
    import collage
    from collage.backends.contract.errors import CollageError

    try:
        result = collage.optimize(
            program,
            options["targets"],
            log=options["log"],
            time_budget_sec=options["time_budget_sec"],
            strategy=strategy,
            progress=stages,
        )
    except CollageError as err:
        return None, f"{type(err).__name__}: {err}"
    return result, ""


def _without_search(
    program: Any,
    job: Job,
    options: dict[str, Any],
    bundles: dict[str, str],
    failures: dict[str, str],
) -> None:
    """Where the search failed: what every single backend makes of it."""
    for name in ("greedy", "single:tvm", *(f"single:{t}" for t in options["targets"][1:])):
        result, failures[name] = _optimize(program, name, options, Stages())
        if result is not None:
            del failures[name]
            bundles[name] = str(result.export(_folder(job.work_dir, name)))


def _export_alternatives(
    result: Any, work_dir: Path, bundles: dict[str, str], failures: dict[str, str]
) -> None:
    """A bundle of every partitioning but the choice, one per distinct library."""
    from collage.backends.contract.errors import CollageError

    folders = {str(result.library.path): bundles[CHOSEN]}
    for entry in result.report.end_to_end:
        # What the search answered, and what was chosen in the end, may be two things.
        shown = "search's answer" if entry.name == "search" else entry.name
        if entry.name not in result.alternatives:
            failures[shown] = entry.note or "did not run"
            continue
        try:
            other = result.alternative(entry.name)
            library = str(other.library.path)
            if library not in folders:
                folders[library] = str(other.export(_folder(work_dir, entry.name)))
            bundles[shown] = folders[library]
        except CollageError as err:
            failures[shown] = str(err)


def _folder(work_dir: Path, name: str) -> Path:
    return work_dir / f"bundle-{name.replace(':', '-')}"


def _summary(result: Any) -> dict[str, Any]:
    """What was chosen, and the end-to-end comparison as the search saw it."""
    report = result.report
    partitions = Counter(c.backend for c in result.partitioning.candidates if not c.inline)
    return {
        "chosen": [e.name for e in report.end_to_end if e.chosen],
        "partitions": dict(partitions),
        "dearest": _dearest(report),
        "gate": {
            e.name: {"median_sec": e.median_sec, "spread_sec": e.spread_sec, "note": e.note}
            for e in report.end_to_end
        },
        "search": {
            name: getattr(report.search, name)
            for name in ("candidates", "distinct_workloads", "measured", "from_log", "invalid")
        },
        "versions": dict(result.versions),
    }


def _dearest(report: Any, most: int = 5) -> list[dict[str, Any]]:
    """The partitions that take longest, equal ones together, with their share of the sum."""
    nodes = {node.index: node for node in report.nodes}
    seconds: dict[str, float] = defaultdict(float)
    shown: dict[str, str] = {}
    for part in report.partitions:
        if part.median_sec is None or part.inline:
            continue
        seconds[part.workload_key] += part.median_sec
        operators = " ".join(dict.fromkeys(nodes[i].op for i in part.nodes))
        shown[part.workload_key] = f"{part.backend}: {operators} {nodes[part.nodes[-1]].shape}"
    total = sum(seconds.values())
    first = sorted(seconds, key=lambda key: -seconds[key])[:most]
    return [
        {"what": shown[key], "sec": seconds[key], "share": seconds[key] / total} for key in first
    ]


class _Loaded(Session):
    def __init__(self, bundle: Any, inputs: list[Array], job: Job) -> None:
        import tvm

        self._device = tvm.device(job.device, 0)
        # As peers are: inputs are bound where they have that.
        self._bound = bundle.bind([tvm.runtime.tensor(a, self._device) for a in inputs])
        self._result: list[Any] = []
        if job.device == "cuda":
            torch.cuda.init()  # for the events; on the same, default, stream

    def call(self) -> None:
        self._result = self._bound()

    def outputs(self) -> list[Array]:
        self._device.sync()
        return [np.asarray(leaf.numpy(), dtype=np.float32) for leaf in self._result]
