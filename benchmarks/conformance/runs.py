"""A run over many small cases: each in a child process, its result kept at once, resumable."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.timing.child import ChildError, ReplaceableChild
from benchmarks.timing.machine import commit
from benchmarks.zoo.results import Results, Row

OUTCOMES = ("passed", "refused", "wrong", "crashed")
BAD = ("wrong", "crashed")
PEERS = ("onnxruntime", "openvino itself")
"""Other engines, which the same cases may be given to."""

_SAVED_EVERY = 100


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
    begin, good, done = time.monotonic(), True, 0
    with (
        tempfile.TemporaryDirectory(prefix="collage-conformance-") as folder,
        ReplaceableChild(
            *(suite.worker, [], Path(folder) / "stderr"), most=suite.cases_a_child
        ) as child,
    ):
        for name, variant in cases:
            if not args.again and (name, suite.stage, variant) in results.rows:
                continue
            if time.monotonic() - begin > args.budget:
                print("out of time; the same command goes on from here", flush=True)
                return 1
            row: Row = {
                **{"network": name, "stage": suite.stage, "variant": variant},
                "commit": commit(),
            }
            try:
                row |= child.ask(request(name, variant), args.limit)
            except ChildError as err:
                row |= {**facts(name), "outcome": "crashed", "reason": str(err)}
            results.add(row)
            good &= row["outcome"] not in BAD or variant in PEERS
            if row["outcome"] in (*BAD, "refused") and variant not in PEERS:
                print(f"{name} {variant}: {row['outcome']}: {row.get('reason')}", flush=True)
            done += 1
            if done % _SAVED_EVERY == 0:
                print(f"{done} done, {time.monotonic() - begin:.0f} s", flush=True)
    page = suite.page(results.of(suite.stage))
    (args.out / suite.table).write_text(page + "\n", encoding="utf-8")
    print(page.split("\n## ")[0])
    return int(not good)
