"""A run over many small cases: each in a child process, its result kept at once, resumable."""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.timing.child import ChildError, ReplaceableChild
from benchmarks.timing.machine import commit
from benchmarks.zoo.results import Results, Row

OUTCOMES = ("passed", "refused", "wrong", "crashed")
BAD = ("wrong", "crashed")
PEERS = ("onnxruntime itself", "openvino itself")
"""Other engines, which the same cases may be given to."""

ON_A_GPU = ("cuda", "cuda libraries")
"""Choices of backends for a GPU: TVM alone, and with CUTLASS, cuBLAS and cuDNN."""

_SAID_EVERY = 100


@dataclass(frozen=True)
class Suite:
    """What cases are of one kind.

    Attributes
    ----------
    stage : str
        What their rows are called.
    log, table : str
        Files in the folder of results.
    worker : str
        The module of the child process.
    cases_a_child : int
        After so many it is replaced.
    page : callable
        The table of all rows, as Markdown.
    """

    stage: str
    log: str
    table: str
    worker: str
    cases_a_child: int
    page: Callable[[Sequence[Row]], str]


def add_arguments(parser: argparse.ArgumentParser, limit_sec: float, out: str) -> None:
    """What any such run is told.

    Parameters
    ----------
    parser : ArgumentParser
        Gets them.
    limit_sec : float
        For one case, unless another limit is given.
    out : str
        The folder of results, unless another one is given.
    """
    parser.add_argument("--cases", default="", help="words that names contain (all)")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds for all of it")
    parser.add_argument("--limit", type=float, default=limit_sec, help="seconds for one case")
    parser.add_argument("--jobs", type=int, default=1, help="cases at once")
    parser.add_argument("--again", action="store_true", help="also what --out has already")
    parser.add_argument("--out", type=Path, default=Path(out))


def named(names: Iterable[str], args: argparse.Namespace) -> list[str]:
    """Those with one of the words in their names that were asked for.

    Parameters
    ----------
    names : iterable of str
        All that there are.
    args : Namespace
        As :func:`add_arguments` lets them be given.
    """
    words = [word for word in args.cases.split(",") if word]
    return [name for name in names if not words or any(word in name for word in words)]


def run_cases(
    suite: Suite,
    cases: Iterable[tuple[str, str]],
    args: argparse.Namespace,
    request: Callable[[str, str], dict[str, Any]],
    facts: Callable[[str], Row],
) -> int:
    """Try what has not been tried, and write the table; 1 when an answer was wrong or none came.

    Parameters
    ----------
    suite : Suite
        What they are.
    cases : iterable of (str, str)
        Names and variants.
    args : Namespace
        As :func:`add_arguments` lets them be given.
    request : callable
        What the child is asked for a name and a variant.
    facts : callable
        What is known of a case whose child died or hung, which is a crash.
    """
    args.out.mkdir(parents=True, exist_ok=True)
    results = Results(args.out / suite.log)
    asked = _Asked(
        [
            (name, variant)
            for name, variant in cases
            if args.again or (name, suite.stage, variant) not in results.rows
        ],
        args.budget,
    )
    good = True

    def work(log: Path) -> None:
        nonlocal good
        child = ReplaceableChild(suite.worker, [], log, most=suite.cases_a_child)
        with closing(child):
            for name, variant in asked:
                row: Row = {
                    **{"network": name, "stage": suite.stage, "variant": variant},
                    "commit": commit(),
                }
                try:
                    row |= child.ask(request(name, variant), args.limit)
                except ChildError as err:
                    row |= {**facts(name), "outcome": "crashed", "reason": str(err)}
                results.add(row)
                if variant in PEERS:
                    continue
                if row["outcome"] in BAD:
                    good = False
                if row["outcome"] in (*BAD, "refused"):
                    print(f"{name} {variant}: {row['outcome']}: {row.get('reason')}", flush=True)

    with (
        tempfile.TemporaryDirectory(prefix="collage-conformance-") as folder,
        ThreadPoolExecutor(args.jobs) as pool,
    ):
        logs = [Path(folder) / f"stderr.{job}" for job in range(args.jobs)]
        list(pool.map(work, logs))
    if asked.left:
        print(f"out of time with {asked.left} left; the same command goes on from here", flush=True)
        good = False
    page = suite.page(results.of(suite.stage))
    (args.out / suite.table).write_text(page + "\n", encoding="utf-8")
    print(page.split("\n## ")[0])
    return int(not good)


class _Asked:
    """Cases, each to whoever asks first, until there are none or the time is up."""

    def __init__(self, cases: Sequence[tuple[str, str]], budget_sec: float) -> None:
        self._cases, self._lock = list(reversed(cases)), threading.Lock()
        self._many, self._begin, self._budget_sec = len(cases), time.monotonic(), budget_sec

    @property
    def left(self) -> int:
        """How many nobody has asked for."""
        return len(self._cases)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        while True:
            taken_sec = time.monotonic() - self._begin
            with self._lock:
                if not self._cases or taken_sec > self._budget_sec:
                    return
                case = self._cases.pop()
                done = self._many - self.left
            if done % _SAID_EVERY == 0:
                print(f"{done} of {self._many} asked for, {taken_sec:.0f} s", flush=True)
            yield case
