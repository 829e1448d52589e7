"""Whole networks on the GPU, this project beside its peers.

    python -m benchmarks.gpu.run --models resnet50,bert_base --batch 1,16 --out out

After each network the tables are written anew, so an interrupted run keeps what it has. With
``--merge`` an earlier run's JSON is gone on with: several short runs make one table.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.child import ChildError
from benchmarks.gpu import device, table
from benchmarks.gpu.contest import Contest, Plan
from benchmarks.machine import commit, machine, now

MODELS = ("resnet50", "resnext50", "mobilenet_v2", "bert_base", "gpt2", "vit_b16")
TINY = ("tiny_convolutions", "tiny_attention")
PEERS = ("eager", "eager, CUDA graph", "torch.compile", "onnxruntime")
TARGETS = ("cuda", "cutlass", "cublas", "cudnn")


def main() -> int:
    """Run from the command line; the exit status is 1 when we failed on a network."""
    args = _arguments()
    begin = time.monotonic()
    names = [n for n in args.models.split(",") if n] or list(TINY if args.dry_run else MODELS)
    batches = [int(b) for b in args.batch.split(",")]
    work = args.work or Path(tempfile.mkdtemp(prefix="collage-gpu-"))
    defaults = ("llvm", "onednn") if args.dry_run else TARGETS
    plan = Plan(
        peers=tuple(p for p in args.peers.split(";") if p),
        targets=tuple(args.targets.split(",")) if args.targets else defaults,
        device="cpu" if args.dry_run else "cuda",
        dtype="float32" if args.dry_run else "float16",
        log=(args.log or args.out / "collage.jsonl").resolve(),
        rounds=args.rounds,
    )
    plan.log.parent.mkdir(parents=True, exist_ok=True)
    record = table.Record.load(args.merge) if args.merge else table.Record()
    record.runs.append(_facts(plan, args.time_budget))
    record.settings = _settings(plan)
    contests = [(name, batch) for batch in batches for name in names]
    if not args.again:
        contests = [(n, b) for n, b in contests if not record.is_done(_key(n, b))]
    good = True
    for number, (name, batch) in enumerate(contests):
        left = args.time_budget - (time.monotonic() - begin)
        budget = max(args.least_budget, left / (len(contests) - number))
        key = _key(name, batch)
        if left < args.least_budget:
            print(f"{key}: left for another run, {left:.0f} s left", flush=True)
            good = False
            continue

        def say(text: str, key: str = key) -> None:
            print(f"[{time.monotonic() - begin:.0f} s] {key}: {text}", flush=True)

        say(f"{budget:.0f} s for it")
        contest = Contest(name, batch, work / f"{name}-{batch}", plan, budget, say)
        try:
            rows = contest.run()
        except (ChildError, OSError, ValueError) as err:
            say(f"failed: {type(err).__name__}: {err}")
            traceback.print_exc()
            rows = list(contest.rows.values())
            for row in rows:
                row.failure = row.failure or f"the contest was broken off: {err}"
        record.add(key, rows)
        table.write(record, args.out)
        print("\n".join(table.contest_table(rows)), flush=True)
        good = good and any(r.engine == "collage" and not r.failure for r in rows)
    print("\n".join(table.summary(record)), flush=True)
    return int(not good)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="", help=f"comma-separated; all: {', '.join(MODELS)}")
    parser.add_argument("--batch", default="1,16")
    parser.add_argument("--peers", default=";".join(PEERS), help="separated by semicolons")
    parser.add_argument("--targets", default="", help=f"default: {','.join(TARGETS)}")
    parser.add_argument("--time-budget", type=float, default=480.0, help="seconds for everything")
    parser.add_argument(
        # With less a search that has nothing in its log or cache is cut off before its end.
        "--least-budget",
        type=float,
        default=260.0,
        help="seconds that every network gets",
    )
    parser.add_argument("--rounds", type=int, default=Plan.rounds)
    parser.add_argument("--log", type=Path, help="the search's log, kept (default: in --out)")
    parser.add_argument("--merge", type=Path, help="the JSON of an earlier run to go on with")
    parser.add_argument("--again", action="store_true", help="also what --merge has already")
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--work", type=Path, help="for what is built (default: a temporary folder)")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, tiny networks")
    return parser.parse_args()


def _key(name: str, batch: int) -> str:
    return f"{name}, batch {batch}"


def _facts(plan: Plan, budget_sec: float) -> dict[str, Any]:
    return {
        "time": now(),
        "commit": commit() or "unknown",
        "machine": machine(),
        "GPU": device.query("name", "driver_version", "memory.total"),
        "clocks before": device.clocks(),
        "conditions": {
            "dtype": plan.dtype,
            "targets": " ".join(plan.targets),
            "rounds": plan.rounds,
            "time budget in s": budget_sec,
        },
    }


def _settings(plan: Plan) -> dict[str, str]:
    # torch is imported late: processes that only write tables need not have it.
    from benchmarks.gpu.engines import engine_of

    return {name: engine_of(name).settings for name in ("collage", *plan.peers)}


if __name__ == "__main__":
    sys.exit(main())
