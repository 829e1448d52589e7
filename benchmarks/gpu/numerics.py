"""Every case of every CUDA backend, run on the GPU and compared with float64.

    python -m benchmarks.gpu.numerics --out out

Cases compile in parallel on all cores, each process answering one after the other; few processes
run them. A case that corrupts the GPU's context dies with its process and the next one starts
fresh. Each result is written as it is known.
"""

from __future__ import annotations

import argparse
import itertools
import os
import queue
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu import device
from benchmarks.gpu.cases import CudaCase, cases_of, families
from benchmarks.gpu.numerics_page import CaseResult, Writer
from benchmarks.gpu.slots import GpuSlot, gpu_slots
from benchmarks.timing.child import ChildError, ReplaceableChild
from collage.backends.contract.registry import get_backend

_WORKER = "benchmarks.gpu.cases.worker"
COMPILE_LIMIT_SEC = 300.0
RUN_LIMIT_SEC = 60.0
_QUICK: dict[str, dict[str, Any]] = {"cutlass": {"find_first_valid": True}}
"""Tuning compiles a dozen kernels for each case, where one shows whether the family is right."""
_RUNNERS_GRACE_SEC = 15.0
"""What was compiled within the time budget may still be run for so long."""


@dataclass(frozen=True)
class Task:
    """One case to do."""

    family: str
    case: CudaCase


@dataclass(frozen=True)
class Settings:
    """How the cases are done.

    Attributes
    ----------
    device : str
        ``cuda``; ``cpu`` for a rehearsal without a GPU.
    work : Path
        For compiled cases.
    cache : Path
        Of compiled objects, kept by content.
    seeds : tuple of int
        One set of inputs each.
    slots : tuple of GpuSlot
        The GPUs that cases are run on.
    compilers, runners : int
        Processes of either kind.
    time_budget_sec : float
        No case is started after this.
    options : dict
        Attributes of targets by backend, for cases that set none.
    """

    device: str
    work: Path
    cache: Path
    seeds: tuple[int, ...]
    slots: tuple[GpuSlot, ...]
    compilers: int
    runners: int
    time_budget_sec: float
    options: dict[str, dict[str, Any]] = field(default_factory=dict)


Report = Callable[[CaseResult], None]


class Numerics:
    """Compiles and runs cases; ``report`` is informed of each result, from any thread."""

    def __init__(self, tasks: Sequence[Task], settings: Settings, report: Report) -> None:
        self._settings = settings
        self._report = report
        self._deadline = time.monotonic() + settings.time_budget_sec
        self._to_compile: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._to_run: queue.SimpleQueue[tuple[Task, dict[str, Any]] | None] = queue.SimpleQueue()
        for item in (*tasks, *([None] * settings.compilers)):
            self._to_compile.put(item)

    def run(self) -> None:
        """Do every task."""
        compilers = self._start(self._compile_all, self._settings.compilers)
        runners = self._start(self._run_all, self._settings.runners)
        for thread in compilers:
            thread.join()
        for _ in runners:
            self._to_run.put(None)
        for thread in runners:
            thread.join()

    def _start(self, work: Callable[[int], None], count: int) -> list[threading.Thread]:
        # Daemons: an interrupt ends the parent, and the children die with it.
        threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(count)]
        for thread in threads:
            thread.start()
        return threads

    def _compile_all(self, number: int) -> None:
        log = self._settings.work / f"compiler{number}.stderr"
        with ReplaceableChild(_WORKER, [], log, self._environment(number)) as child:
            while (task := self._to_compile.get()) is not None:
                left = self._deadline - time.monotonic()
                if left <= 0:
                    self._finish(task, "out of time", message="not started within the time budget")
                    continue
                settings = self._settings
                request = {
                    "do": "compile",
                    "family": task.family,
                    "name": task.case.name,
                    "device": settings.device,
                    "folder": str(self._folder(task)),
                    "cache_dir": str(settings.cache),
                    "seeds": settings.seeds,
                    "options": settings.options,
                }
                try:
                    answer = child.ask(request, min(COMPILE_LIMIT_SEC, left + _RUNNERS_GRACE_SEC))
                except ChildError as err:
                    self._finish(task, "not compiled", message=str(err))
                    continue
                self._to_run.put((task, answer))

    def _run_all(self, number: int) -> None:
        settings = self._settings
        log = settings.work / f"runner{number}.stderr"
        # A kernel's error may have left the GPU's context unusable for the next one.
        environment = self._environment(number)
        with ReplaceableChild(_WORKER, [], log, environment, after_any=True) as child:
            while (item := self._to_run.get()) is not None:
                task, compiled = item
                if time.monotonic() > self._deadline + _RUNNERS_GRACE_SEC:
                    self._finish(task, "out of time", message="compiled, but not run in time")
                    continue
                begin = time.perf_counter()
                request = {
                    **compiled,
                    "do": "run",
                    "device": settings.device,
                    "folder": str(self._folder(task)),
                    "seeds": settings.seeds,
                }
                try:
                    error = float(child.ask(request, RUN_LIMIT_SEC)["largest_error"])
                except ChildError as err:
                    self._finish(task, "not run", message=str(err), **_seconds(compiled, begin))
                    continue
                good = error <= task.case.rtol
                message = "" if good else f"off by {error:.2g}, at most {task.case.rtol:.2g}"
                status = "ok" if good else "wrong"
                figures = _seconds(compiled, begin)
                self._finish(task, status, message=message, largest_error=error, **figures)

    def _environment(self, number: int) -> dict[str, str]:
        """Processes take the GPUs in turns."""
        places = self._settings.slots
        return places[number % len(places)].environment

    def _folder(self, task: Task) -> Path:
        return self._settings.work / task.family.rpartition(".")[2] / _safe(task.case.name)

    def _finish(self, task: Task, status: str, **rest: Any) -> None:
        case = task.case
        self._report(
            CaseResult(
                task.family, case.name, case.backend, case.pattern, status, case.rtol, **rest
            )
        )


def _seconds(compiled: dict[str, Any], begin: float) -> dict[str, float]:
    return {"compile_sec": compiled["compile_sec"], "run_sec": time.perf_counter() - begin}


def _safe(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)


def collect(wanted: Iterable[str], match: str, failed: Callable[[str, str], None]) -> list[Task]:
    """Tasks of these families, in turns: every backend has results early.

    Parameters
    ----------
    match : str
        Only cases with this in their name.
    failed : callable
        Informed of a family that cannot be loaded, and why.
    """
    columns: list[list[Task]] = []
    for family in wanted:
        try:
            cases = cases_of(family).values()
        except Exception as err:  # noqa: BLE001 - one backend's mistake must not hide the others
            failed(family, f"its cases cannot be made: {type(err).__name__}: {err}")
            continue
        usable: dict[str, bool] = {}
        for name in sorted({case.backend for case in cases}):
            found = get_backend(name).probe()
            usable[name] = found.usable
            if not found.usable:
                print(f"{family}: not available here: {found.reason}", flush=True)
        columns.append([Task(family, c) for c in cases if usable[c.backend] and match in c.name])
    rows = itertools.zip_longest(*columns)
    return [task for row in rows for task in row if task is not None]


def main() -> int:
    """Run from the command line; the exit status is 1 when a case is not ok."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--work", type=Path, help="for compiled cases (default: a temporary one)")
    parser.add_argument("--cache", type=Path, default=Path("out/gpu-cache"))
    parser.add_argument("--families", default="", help="comma-separated; default: all")
    parser.add_argument("--match", default="", help="only cases with this in their name")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--time-budget", type=float, default=300.0, help="seconds")
    parser.add_argument(
        "--tune", action="store_true", help="let CUTLASS compile and time every configuration"
    )
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--compilers", type=int, default=cores)
    parser.add_argument("--runners", type=int, default=max(2, cores // 4))
    args = parser.parse_args()
    broken: list[str] = []

    def failed(family: str, reason: str) -> None:
        broken.append(family)
        print(f"{family}: {reason}", flush=True)

    wanted = [f for f in args.families.split(",") if f] or families()
    tasks = collect(wanted, args.match, failed)
    with tempfile.TemporaryDirectory(prefix="collage-numerics-") as temporary:
        settings = Settings(
            args.device,
            (args.work or Path(temporary)).resolve(),
            args.cache.resolve(),
            (secrets.randbelow(1 << 31), secrets.randbelow(1 << 31)),
            tuple(gpu_slots()),
            max(1, min(args.compilers, len(tasks))),
            args.runners,
            args.time_budget,
            {} if args.tune else _QUICK,
        )
        print(f"{len(tasks)} cases, seeds {settings.seeds}", flush=True)
        writer = Writer(args.out, len(tasks))
        Numerics(tasks, settings, writer).run()
        seeds = " and ".join(map(str, settings.seeds))
        writer.finish(
            f"Seeds {seeds}; {len(settings.slots)} times {device.query('name').get('name', 'CPU')}."
        )
    if not tasks:
        print("no case was run: none matches, or no backend that has them is available", flush=True)
    return int(bool(broken) or not tasks or any(r.status != "ok" for r in writer.results))


if __name__ == "__main__":
    sys.exit(main())
