"""The stage ``run``: each network searched in a time budget, checked, and timed beside its peers.

A network is a contest of :mod:`benchmarks.gpu.contest`: our search, eager PyTorch and the other
peers in processes of their own, compared with float64 and timed in turns. On a machine with several
GPUs each has networks of its own.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.gpu import device
from benchmarks.gpu.contest import COLLAGE, EAGER, Contest, Plan
from benchmarks.gpu.rows import Row, timed
from benchmarks.gpu.slots import GpuSlot, gpu_slots
from benchmarks.timing.child import ChildError
from benchmarks.timing.machine import commit, machine, now
from benchmarks.zoo import table
from benchmarks.zoo.families import NETWORKS
from benchmarks.zoo.results import Results

GRAPH = "eager, CUDA graph"
COMPILED = "torch.compile"
TARGETS = {"cpu": ("llvm", "onednn", "openblas"), "cuda": ("cuda", "cutlass", "cublas", "cudnn")}
PEERS = {"cpu": (EAGER, "onnxruntime", "openvino"), "cuda": (EAGER, GRAPH)}
NUM_ROUNDS = 5


def run_all(names: Sequence[str], results: Results, args: argparse.Namespace) -> int:
    """Run networks until all are done or the budget is spent; an exit status.

    Parameters
    ----------
    names : sequence of str
        In the order in which they are begun; each may end as :func:`split` takes it apart.
    results : Results
        Gets a row for each; those that have one are left out unless ``args.again``.
    args : argparse.Namespace
        ``device``, ``budget``, ``limit``, ``search_sec``, ``compile_peer``, ``abreast``, ``out``.
    """
    waiting = [
        name
        for name in names
        if args.again or (split(name)[0], "run", _variant(name, args)) not in results.rows
    ]
    slots = gpu_slots(abreast=args.abreast)
    with (
        tempfile.TemporaryDirectory(prefix="collage-zoo-", ignore_cleanup_errors=True) as work,
        ThreadPoolExecutor(len(slots)) as pool,
    ):
        series = _Series(waiting, results, args, Path(work))
        good = list(pool.map(series.run, slots))
    table.write(results, args.out)
    print(table.summary(results, "run"), flush=True)
    return int(not all(good))


def split(chosen: str) -> tuple[str, str, int]:
    """A name as it was asked for: the network's own, an element type or nothing, and the batch.

    >>> split("plain/lstm=bfloat16x8"), split("plain/lstm=float16"), split("plain/lstm")
    (('plain/lstm', 'bfloat16', 8), ('plain/lstm', 'float16', 1), ('plain/lstm', '', 1))
    """
    name, _, how = chosen.partition("=")
    dtype, _, batch = how.partition("x")
    return name, dtype, int(batch or 1)


def _variant(chosen: str, args: argparse.Namespace) -> str:
    return " ".join([args.device, *chosen.split("=")[1:]])


class _Series:
    """Networks waiting for a slot."""

    def __init__(
        self, waiting: list[str], results: Results, args: argparse.Namespace, work: Path
    ) -> None:
        self._waiting, self._results, self._args, self._work = waiting, results, args, work
        self._begin = time.monotonic()
        self._lock = threading.Lock()
        self._facts = _facts(args.device)

    def run(self, slot: GpuSlot) -> bool:
        """Take networks until there are none, or too little time for another."""
        slot.enter()
        good = True
        while (name := self._take()) is not None:
            row = self._one(name, slot)
            good &= "failure" not in row
            self._results.add(row)
            with self._lock:
                print(table.line(row), flush=True)
                table.write(self._results, self._args.out)
        return good

    def _left(self) -> float:
        return float(self._args.budget - (time.monotonic() - self._begin))

    def _take(self) -> str | None:
        with self._lock:
            if self._waiting and self._left() < 0.75 * self._args.limit:
                print(f"out of time: {len(self._waiting)} left for another run", flush=True)
                self._waiting.clear()
            return self._waiting.pop(0) if self._waiting else None

    def _one(self, chosen: str, slot: GpuSlot) -> dict[str, Any]:
        args, begin = self._args, time.monotonic()
        name, dtype, batch = split(chosen)
        variant = _variant(chosen, args)
        row: dict[str, Any] = {"network": name, "stage": "run", "variant": variant}
        row |= self._facts
        if missing := NETWORKS[name].missing:
            return {**row, "skipped": f"not installed: {', '.join(missing)}", "wall_sec": 0.0}
        place = self._work / "-".join(re.split("[/=]", chosen))
        plan = Plan(
            peers=PEERS[args.device] + ((COMPILED,) if self._with_compiler(name) else ()),
            targets=tuple(args.targets.split(",")) if args.targets else TARGETS[args.device],
            device=args.device,
            dtype=dtype or ("float32" if args.device == "cpu" else "float16"),
            # A log of its own: what a search takes is then what it takes with nothing known.
            log=place / "log.jsonl",
            rounds=NUM_ROUNDS,
            abreast=args.abreast,
            search_sec=args.search_sec,
            alternatives=False,
            wrong_difference=float("inf"),
        )
        said: list[str] = []
        budget_sec = min(args.limit, self._left())
        contest = Contest(name, batch, place, plan, slot, budget_sec, said.append)
        try:
            contest.run()
        except (ChildError, OSError, ValueError) as err:
            traceback.print_exc()
            row |= {"failed_in": "contest", "failure": f"{type(err).__name__}: {err}"}
        found = _found(contest.rows)
        found["reference"] = contest.reference_dtype
        return {**found, **row, "wall_sec": time.monotonic() - begin}

    def _with_compiler(self, name: str) -> bool:
        return any(word in name for word in self._args.compile_peer.split(",") if word)


def _found(rows: dict[str, Row]) -> dict[str, Any]:
    """What a contest says about us and about the peers."""
    times = {
        name: statistics.median(row.round_sec) for name, row in timed(list(rows.values())).items()
    }
    found: dict[str, Any] = {
        "seconds": times,
        "rms": {name: row.rms for name, row in rows.items() if row.rms is not None},
        "peer_failures": {n: r.failure for n, r in rows.items() if r.failure and n != COLLAGE},
    }
    ours = rows.get(COLLAGE)
    if ours is not None:
        wanted = ("budget_sec", "prepare_sec", "export_sec", "stages_sec", "chosen", "partitions",
                  "dearest", "search", "gate")  # fmt: skip
        found |= {name: ours.figures[name] for name in wanted if name in ours.figures}
        found["fewest_elements"] = ours.fewest
        failures = ours.figures.get("failures", {})
        failure = ours.failure or failures.get(COLLAGE, "")
        if failure:
            found |= {"failed_in": "search", "failure": failure}
    return found


def _facts(device_name: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"commit": commit(), "time": now(), "machine": machine()}
    if device_name == "cuda":
        facts["gpu"] = device.query("name", "driver_version")
    return facts
