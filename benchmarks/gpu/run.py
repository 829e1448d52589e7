"""Whole networks on the GPU, this project beside its peers.

    python -m benchmarks.gpu.run --models resnet50,bert_base --batch 1,16 --out out

On a machine with several GPUs each has a contest of its own. After each network the tables are
written anew, so an interrupted run keeps what it has. With ``--merge`` an earlier run's JSON is
gone on with: several short runs make one table.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.gpu import device, table
from benchmarks.gpu.contest import Contest, Plan
from benchmarks.gpu.slots import GpuSlot, gpu_slots
from benchmarks.timing.child import ChildError
from benchmarks.timing.machine import commit, machine, now

LEAST_SEC = {
    "resnet50": 280.0,
    "resnext50": 280.0,
    "mobilenet_v2": 280.0,
    "bert_base": 200.0,
    "gpt2": 200.0,
    "vit_b16": 200.0,
}
"""Every network, and the seconds that a contest with nothing in its log or cache takes at least:
with less the search, or ``torch.compile``, is cut off."""
TINY = ("tiny_convolutions", "tiny_attention")
PEERS = ("eager", "eager, CUDA graph", "torch.compile", "onnxruntime")
TARGETS = ("cuda", "cutlass", "cublas", "cudnn")


def main() -> int:
    """Run from the command line; the exit status is 1 when we failed on a network."""
    args = _arguments()
    names = [n for n in args.models.split(",") if n] or list(TINY if args.dry_run else LEAST_SEC)
    batches = [int(b) for b in args.batch.split(",")]
    defaults = ("llvm", "onednn") if args.dry_run else TARGETS
    plan = Plan(
        peers=tuple(p for p in args.peers.split(";") if p),
        targets=tuple(args.targets.split(",")) if args.targets else defaults,
        device="cpu" if args.dry_run else "cuda",
        dtype="float32" if args.dry_run else "float16",
        log=(args.log or args.out / "collage.jsonl").resolve(),
        compiler_cache=args.compiler_cache.resolve() if args.compiler_cache else None,
        rounds=args.rounds,
        abreast=args.abreast,
    )
    plan.log.parent.mkdir(parents=True, exist_ok=True)
    record = table.Record.load(args.merge) if args.merge else table.Record()
    places = gpu_slots([g for g in args.gpus.split(",") if g], args.abreast)
    record.runs.append(_facts(plan, args.time_budget, places))
    record.settings = _settings(plan)
    contests = [(name, batch) for batch in batches for name in names]
    if not args.again:
        contests = [(n, b) for n, b in contests if not record.is_done(_key(n, b))]
    work = args.work or Path(tempfile.mkdtemp(prefix="collage-gpu-"))
    series = Series(contests, plan, record, work, len(places), args)
    with ThreadPoolExecutor(len(places)) as pool:
        good = list(pool.map(series.run, places))
    print("\n".join(table.summary(record)), flush=True)
    return int(not all(good))


class Series:
    """Contests waiting for a slot, and the record that they are written into.

    Parameters
    ----------
    contests : sequence of (str, int)
        Models and batch sizes.
    plan : Plan
    record : table.Record
        Written out after each contest.
    work : Path
        For what is built.
    num_slots : int
        How many contests are run at once.
    args : argparse.Namespace
        ``time_budget``, ``least_budget`` (seconds), ``out``.
    """

    def __init__(
        self,
        contests: Sequence[tuple[str, int]],
        plan: Plan,
        record: table.Record,
        work: Path,
        num_slots: int,
        args: argparse.Namespace,
    ) -> None:
        self._waiting = list(contests)
        self._plan, self._record, self._work, self._args = plan, record, work, args
        self._slots = num_slots
        self._running = 0
        self._begin = time.monotonic()
        self._lock = threading.Lock()

    def run(self, slot: GpuSlot) -> bool:
        """Take contests until none is waiting; whether all of them have times of ours."""
        slot.enter()
        good = True
        while (taken := self._take()) is not None:
            name, batch, budget_sec = taken
            if budget_sec < self._least(name):
                self._say(f"{_key(name, batch)}: left for another run, {budget_sec:.0f} s left")
                good = False
            else:
                good &= self._contest(name, batch, slot, budget_sec)
            with self._lock:
                self._running -= 1
        return good

    def _take(self) -> tuple[str, int, float] | None:
        """The next contest and the seconds for it.

        While more are to come than there are slots it gets an even share, and a fifth more:
        networks with convolutions come first and need more than the others, so later ones have what
        these leave.
        """
        with self._lock:
            if not self._waiting:
                return None
            left = self._args.time_budget - (time.monotonic() - self._begin)
            # Those that began just now are of the same turn.
            turns = math.ceil((len(self._waiting) + self._running) / self._slots)
            self._running += 1
            name, batch = self._waiting.pop(0)
            share = left if turns == 1 else max(self._least(name), 1.2 * left / turns)
            return name, batch, min(left, share)

    def _least(self, name: str) -> float:
        given: float | None = self._args.least_budget
        return LEAST_SEC.get(name, 0.0) if given is None else given

    def _contest(self, name: str, batch: int, slot: GpuSlot, budget_sec: float) -> bool:
        key = _key(name, batch)

        def say(text: str) -> None:
            self._say(f"{key}: {text}")

        say(f"{budget_sec:.0f} s for it{f' on GPU {slot.gpu}' if slot.gpu else ''}")
        place = self._work / f"{name}-{batch}"
        contest = Contest(name, batch, place, self._plan, slot, budget_sec, say)
        try:
            rows = contest.run()
        except (ChildError, OSError, ValueError) as err:
            say(f"failed: {type(err).__name__}: {err}")
            traceback.print_exc()
            rows = list(contest.rows.values())
            for row in rows:
                row.failure = row.failure or f"the contest was broken off: {err}"
        with self._lock:
            self._record.add(key, rows)
            table.write(self._record, self._args.out)
        print("\n".join(table.contest_table(rows)), flush=True)
        return any(r.engine == "collage" and not r.failure for r in rows)

    def _say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._begin:.0f} s] {text}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--models", default="", help=f"comma-separated; all: {', '.join(LEAST_SEC)}"
    )
    parser.add_argument("--batch", default="1,16")
    parser.add_argument("--peers", default=";".join(PEERS), help="separated by semicolons")
    parser.add_argument("--targets", default="", help=f"default: {','.join(TARGETS)}")
    parser.add_argument("--time-budget", type=float, default=480.0, help="seconds for everything")
    parser.add_argument(
        "--least-budget", type=float, help="seconds that every network gets (default: its own)"
    )
    parser.add_argument(
        "--gpus", default="", help="one contest at a time on each of these (default: all)"
    )
    parser.add_argument(
        "--abreast", type=int, default=1, help="contests that are prepared at once on each GPU"
    )
    parser.add_argument("--rounds", type=int, default=Plan.rounds)
    parser.add_argument("--log", type=Path, help="the search's log, kept (default: in --out)")
    parser.add_argument(
        "--compiler-cache", type=Path, help="what torch.compile made, kept (default: nothing is)"
    )
    parser.add_argument("--merge", type=Path, help="the JSON of an earlier run to go on with")
    parser.add_argument("--again", action="store_true", help="also what --merge has already")
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--work", type=Path, help="for what is built (default: a temporary folder)")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, tiny networks")
    return parser.parse_args()


def _key(name: str, batch: int) -> str:
    return f"{name}, batch {batch}"


def _facts(plan: Plan, budget_sec: float, places: Sequence[GpuSlot]) -> dict[str, Any]:
    first = places[0].gpu
    return {
        "time": now(),
        "commit": commit() or "unknown",
        "machine": machine(),
        "GPU": device.query("name", "driver_version", "memory.total", gpu=first),
        "clocks before": device.clocks(first),
        "conditions": {
            "dtype": plan.dtype,
            "targets": " ".join(plan.targets),
            "rounds": plan.rounds,
            "time budget in s": budget_sec,
            "GPUs": len({slot.gpu for slot in places}),
            "cores for each": len(places[0].cores),
            "contests prepared at once on each": plan.abreast,
        },
    }


def _settings(plan: Plan) -> dict[str, str]:
    # torch is imported late: processes that only write tables need not have it.
    from benchmarks.gpu.engines import engine_of

    return {name: engine_of(name).settings for name in ("collage", *plan.peers)}


if __name__ == "__main__":
    sys.exit(main())
