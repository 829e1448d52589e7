"""Every operator's best candidate against PyTorch's own kernel for the same operator.

    python -m benchmarks.operators.run [--device cuda --dtype float16,bfloat16,float32]
        [--family a,b] [--match TEXT] [--network torchvision:resnet18] [--budget SEC] [--out FILE]

Goes on with the file that is there: what it holds is not measured again, unless --again is given,
or --above RATIO for what is slower than that.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from benchmarks.gpu import device as gpu
from benchmarks.operators.case import OperatorCase
from benchmarks.operators.grid import all_cases
from benchmarks.operators.network import network_cases
from benchmarks.operators.page import FLOOR, Row, read, spread_of, write
from benchmarks.operators.worker import COMPILER, OURS, TORCH
from benchmarks.timing.child import ChildError, ReplaceableChild
from benchmarks.timing.machine import commit, machine, now

ROOT = Path(__file__).resolve().parents[2]
_WORKER = "benchmarks.operators.worker"
_COMPILE_LIMIT_SEC = 240.0
_RUN_LIMIT_SEC = 90.0
_TOLERANCES = {"float32": 1e-3, "float16": 2e-2, "bfloat16": 1e-1}
_HOPELESS = 3.0
"""A candidate that takes this many times the best one's time in the first round is out."""


@dataclass(frozen=True)
class Settings:
    """How everything is measured."""

    device: str
    threads: int
    rounds: int
    turn_sec: float
    seed: int
    work: Path
    cache: Path
    network: str
    options: dict[str, dict[str, Any]]


def _process(role: str, settings: Settings, number: int = 0) -> ReplaceableChild:
    arguments = [role, settings.device, str(settings.threads)]
    log = settings.work / f"{role}{number}.stderr"
    return ReplaceableChild(_WORKER, arguments, log, stopped_between=True)


class Comparison:
    """Compiles, checks and times one case after the other."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ours, self._torch = _process(OURS, settings), _process(TORCH, settings)

    def close(self) -> None:
        self._ours.close()
        self._torch.close()

    def measure(self, case: OperatorCase, dtype: str, folder: Path, compiled: Any) -> Row:
        """The row of a case that was compiled.

        Parameters
        ----------
        case : OperatorCase
            What it is.
        dtype : str
            In which data type.
        folder : Path
            Where it was compiled.
        compiled : dict or ChildError
            The compiler's answer.
        """
        row = Row(case.family, case.name, dtype)
        if isinstance(compiled, ChildError):
            row.reason = str(compiled)
            return row
        reasons = dict(compiled["reasons"])
        settings = self._settings
        request = {"do": "load", "case": case.key, "network": settings.network, "dtype": dtype,
                   "seed": settings.seed, "folder": str(folder)}  # fmt: skip
        try:
            facts = self._torch.ask(request, _RUN_LIMIT_SEC)
            row.torch_error, row.bytes, row.flops = (
                facts["largest_error"],
                facts["bytes"],
                facts["flops"],
            )
            request = {
                "do": "load",
                "folder": str(folder),
                "libraries": compiled["libraries"],
                "places_along": case.places_along,
            }
            loaded = self._ours.ask(request, _RUN_LIMIT_SEC)
            reasons.update(loaded["reasons"])
            limit = max(_TOLERANCES[dtype], 3.0 * row.torch_error)
            right = {n: e for n, e in loaded["errors"].items() if e <= limit}
            wrong = {n: e for n, e in loaded["errors"].items() if e > limit}
            reasons.update({n: f"wrong, off by {e:.2g}" for n, e in wrong.items()})
            if right:
                self._ours.ask({"do": "keep", "names": list(right)}, _RUN_LIMIT_SEC)
                self._time(row, right)
        except ChildError as err:
            reasons["run"] = str(err)
        row.reason = "; ".join(f"{name}: {text}" for name, text in reasons.items())
        if not row.ratio and not row.reason:
            row.reason = "no backend takes it"
        return row

    def _time(self, row: Row, errors: dict[str, float]) -> None:
        settings = self._settings
        request = {"do": "time", "turn_sec": settings.turn_sec}
        rounds: dict[str, list[float]] = {}
        for number in range(settings.rounds):
            sides = [self._ours, self._torch]
            for side in sides if number % 2 else reversed(sides):
                for name, sec in side.ask(request, _RUN_LIMIT_SEC).items():
                    rounds.setdefault(name, []).append(sec)
            if number == 0:
                best = min(rounds[name][0] for name in errors)
                kept = [name for name in errors if rounds[name][0] <= _HOPELESS * best]
                self._ours.ask({"do": "keep", "names": kept}, _RUN_LIMIT_SEC)
        row.sec = {name: statistics.median(sec) for name, sec in rounds.items()}
        row.best = min(kept, key=lambda name: row.sec[name])
        row.error = errors[row.best]
        row.ratio = spread_of(rounds[row.best], rounds[TORCH])


class Compilers:
    """Processes that compile ahead; on a CPU only one, which waits while others are timed."""

    def __init__(self, settings: Settings, count: int) -> None:
        self._settings = settings
        self._pool = ThreadPoolExecutor(count)
        self._free: SimpleQueue[ReplaceableChild] = SimpleQueue()
        self._all = [_process(COMPILER, settings, number) for number in range(count)]
        for process in self._all:
            self._free.put(process)

    def submit(self, case: OperatorCase, dtype: str, folder: Path) -> Future[Any]:
        """The compiler's answer to come, or its error as a value."""
        return self._pool.submit(self.compile, case, dtype, folder)

    def compile(self, case: OperatorCase, dtype: str, folder: Path) -> Any:
        settings = self._settings
        request = {"do": "compile", "case": case.key, "network": settings.network, "dtype": dtype,
                   "seed": settings.seed, "folder": str(folder), "cache": str(settings.cache),
                   "options": settings.options}  # fmt: skip
        process = self._free.get()
        try:
            return process.ask(request, _COMPILE_LIMIT_SEC)
        except ChildError as err:
            return err
        finally:
            self._free.put(process)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in self._all:
            process.close()


def measure_all(
    tasks: list[tuple[OperatorCase, str]],
    settings: Settings,
    compilers: int,
    deadline: float,
    report: Callable[[Row], None],
) -> None:
    """Measure until all is done or the time is up.

    Parameters
    ----------
    tasks : list
        Cases and data types.
    settings : Settings
        See there.
    compilers : int
        Processes that compile ahead while others are timed.
    deadline : float
        By ``time.monotonic``.
    report : callable
        Given each row as it is known.
    """
    comparison, pool = Comparison(settings), Compilers(settings, compilers)
    ahead: dict[int, Future[Any]] = {}
    # On a CPU whoever compiles would disturb who is timed.
    lookahead = 3 * compilers if settings.device == "cuda" else 1
    try:
        for index, (case, dtype) in enumerate(tasks):
            if time.monotonic() > deadline:
                print(f"the time is up; {len(tasks) - index} are left to do", flush=True)
                break
            for later in range(index, min(index + lookahead, len(tasks))):
                if later not in ahead:
                    ahead[later] = pool.submit(*tasks[later], settings.work / str(later))
            answer = ahead.pop(index).result()
            report(comparison.measure(case, dtype, settings.work / str(index), answer))
    finally:
        pool.close()
        comparison.close()


def _wanted(row: Row | None, above: float | None) -> bool:
    """Whether to measure what may have a row."""
    return row is None or (above is not None and row.median > above)


def main() -> int:
    """Run from the command line; the exit status is 1 when an operator is below the floor."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", default="float32", help="comma-separated")
    parser.add_argument("--family", default="", help="comma-separated; default: all")
    parser.add_argument("--match", default="", help="only names with this in them")
    parser.add_argument("--network", default="", help="its operators instead of the grid")
    parser.add_argument("--budget", type=float, default=3600.0, help="seconds")
    parser.add_argument("--out", type=Path, help="JSON; the page is written beside it")
    parser.add_argument("--again", action="store_true", help="measure what is there once more")
    parser.add_argument("--above", type=float, help="again what is slower than that, or timeless")
    parser.add_argument("--tune", action="store_true", help="let CUTLASS try all its kernels")
    parser.add_argument("--threads", type=int, default=cores)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turn", type=float, default=0.03, help="seconds a turn lasts")
    parser.add_argument("--compilers", type=int, default=max(1, cores - 2))
    parser.add_argument("--cache", type=Path, default=Path("out/operators-cache"))
    args = parser.parse_args()
    deadline = time.monotonic() + args.budget
    out = args.out or ROOT / f"benchmarks/results/operators_{args.device}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    _, rows = read(out)
    cases = list(network_cases(args.network)) if args.network else all_cases()
    families = {f for f in args.family.split(",") if f}
    tasks = [
        (case, dtype)
        for case, dtype in itertools.product(cases, args.dtype.split(","))
        if (not families or case.family in families)
        and args.match in case.name
        and (args.again or _wanted(rows.get(f"{case.key}/{dtype}"), args.above))
    ]
    facts, revision = machine(), commit() or "unknown"
    conditions = {
        "Device": gpu.query("name").get("name", "") if args.device == "cuda" else facts["cpu"],
        "Threads": args.threads,
        "Load average before": facts["load_average_before"],
        "Commit, time": f"{revision}, {now()}",
        "Made by": "`python -m benchmarks.operators.run`",
    }

    def report(row: Row) -> None:
        row.commit = revision
        rows[row.key] = row
        figure = f"{row.median:5.2f} {row.best}" if row.ratio else "  none"
        print(f"{figure} {row.key} {row.reason[:200]}", flush=True)
        write(out, conditions, rows.values())

    options = {"cutlass": {"find_first_valid": True}}
    if args.device == "cpu" or args.tune:
        options = {}
    with tempfile.TemporaryDirectory(prefix="collage-operators-") as work:
        settings = Settings(
            args.device, args.threads, args.rounds, args.turn, 0, Path(work),
            args.cache.resolve(), args.network,
            options,
        )  # fmt: skip
        compilers = args.compilers if args.device == "cuda" else 1
        measure_all(tasks, settings, compilers, deadline, report)
    worst = sorted((row for row in rows.values() if row.ratio), key=lambda row: -row.median)
    print("\nThe worst twenty:")
    for row in worst[:20]:
        print(f"{row.median:6.2f} {row.best:9} {row.key}")
    return int(any(row.median > FLOOR for row in worst))


if __name__ == "__main__":
    sys.exit(main())
