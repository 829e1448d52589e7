"""The ONNX standard's node cases, end to end, on each choice of backends.

    python -m benchmarks.conformance --out out/conformance
    python -m benchmarks.conformance --backends tvm --cases lstm,gru --again

Each case is imported, optimized without measuring, exported, loaded and run, and compared with
the standard's own answers. Results are lines of ``conformance.jsonl`` in ``--out``; what is there
is not done again. Cases share a child process, until one of them breaks it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.conformance import table
from benchmarks.conformance.cases import cases
from benchmarks.timing.child import ChildError, ReplaceableChild
from benchmarks.timing.machine import commit
from benchmarks.zoo.results import Results, Row

CHOICES = ("tvm", "onednn", "openblas", "openvino", "all")
CASES_A_CHILD = 200
SAVED_EVERY = 100
_WORKER = "benchmarks.conformance.worker"


def main() -> int:
    """Run from the command line; the exit status is 1 when an answer was wrong or none came."""
    args = _arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    results = Results(args.out / "conformance.jsonl")
    words = [word for word in args.cases.split(",") if word]
    names = [name for name in cases() if not words or any(word in name for word in words)]
    # Operators themselves before what spells them out.
    names.sort(key=lambda name: "_expanded" in name)
    begin, good, done = time.monotonic(), True, 0
    with (
        tempfile.TemporaryDirectory(prefix="collage-conformance-") as folder,
        ReplaceableChild(_WORKER, [], Path(folder) / "stderr", most=CASES_A_CHILD) as child,
    ):
        for backends, name in ((b, n) for b in args.backends.split(",") for n in names):
            if not args.again and (name, "onnx", backends) in results.rows:
                continue
            if time.monotonic() - begin > args.budget:
                print("out of time; the same command goes on from here", flush=True)
                return 1
            row: Row = {"network": name, "stage": "onnx", "variant": backends, "commit": commit()}
            row.update(_attempt(child, name, backends, args.limit))
            results.add(row)
            good &= row["outcome"] in ("passed", "refused")
            if row["outcome"] != "passed":
                print(f"{name} {backends}: {row['outcome']}: {row.get('reason')}", flush=True)
            done += 1
            if done % SAVED_EVERY == 0:
                print(f"{done} done, {time.monotonic() - begin:.0f} s", flush=True)
    page = table.page(results.of("onnx"))
    (args.out / "conformance.md").write_text(page + "\n", encoding="utf-8")
    print(page.split("\n## ")[0])
    return int(not good)


def _attempt(child: ReplaceableChild, name: str, backends: str, limit_sec: float) -> Row:
    """What became of a case; a child that dies or hangs is a crash."""
    try:
        return child.ask({"case": name, "backends": backends}, limit_sec)
    except ChildError as err:
        case = cases()[name]
        facts = {"operator": case.operator, "float32": case.has_float32}
        return {**facts, "outcome": "crashed", "reason": str(err)}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", default=",".join(CHOICES), help=f"of {', '.join(CHOICES)}")
    parser.add_argument("--cases", default="", help="words that names contain (all)")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds for all of it")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one case")
    parser.add_argument("--again", action="store_true", help="also what --out has already")
    parser.add_argument("--out", type=Path, default=Path("out/conformance"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
