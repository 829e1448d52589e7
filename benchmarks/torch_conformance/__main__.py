"""PyTorch's samples of its own operators and modules, end to end, beside eager PyTorch.

    pip install expecttest      # PyTorch's own lists of samples ask for it
    python -m benchmarks.torch_conformance --out out/torch_conformance
    python -m benchmarks.torch_conformance --cases fft,cumsum --again

Each sample is exported, imported, optimized without measuring, bundled, loaded and run. Results are
lines of ``torch.jsonl`` in ``--out``; what is there is not done again. Samples share a child
process, until one of them breaks it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.timing.child import ChildError, ReplaceableChild
from benchmarks.timing.machine import commit
from benchmarks.torch_conformance import table
from benchmarks.torch_conformance.samples import SAMPLES, Case, names
from benchmarks.zoo.results import Results, Row

CASES_A_CHILD = 300
SAVED_EVERY = 100
_WORKER = "benchmarks.torch_conformance.worker"


def main() -> int:
    """Run from the command line; the exit status is 1 when an answer was wrong or none came."""
    args = _arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    results = Results(args.out / "torch.jsonl")
    words = [word for word in args.cases.split(",") if word]
    chosen = [n for n in names(args.dtypes.split(",")) if not words or any(w in n for w in words)]
    begin, good, done = time.monotonic(), True, 0
    with (
        tempfile.TemporaryDirectory(prefix="collage-torch-conformance-") as folder,
        ReplaceableChild(_WORKER, [], Path(folder) / "stderr", most=CASES_A_CHILD) as child,
    ):
        for name in chosen:
            if not args.again and (name, "torch", "tvm") in results.rows:
                continue
            if time.monotonic() - begin > args.budget:
                print("out of time; the same command goes on from here", flush=True)
                return 1
            row: Row = {"network": name, "stage": "torch", "variant": "tvm", "commit": commit()}
            row.update(_attempt(child, name, args.limit))
            results.add(row)
            good &= row["outcome"] not in ("wrong", "crashed")
            if row["outcome"] in ("wrong", "crashed", "refused"):
                print(f"{name}: {row['outcome']}: {row['reason']}", flush=True)
            done += 1
            if done % SAVED_EVERY == 0:
                print(f"{done} done, {time.monotonic() - begin:.0f} s", flush=True)
    page = table.page(results.of("torch"))
    (args.out / "torch_conformance.md").write_text(page + "\n", encoding="utf-8")
    print(page.split("\n## ")[0])
    return int(not good)


def _attempt(child: ReplaceableChild, name: str, limit_sec: float) -> Row:
    """What became of a sample; a child that dies or hangs is a crash."""
    try:
        return child.ask({"case": name}, limit_sec)
    except ChildError as err:
        case = Case.of(name)
        facts = {"operator": case.operator, "dtype": case.dtype}
        return {**facts, "outcome": "crashed", "reason": str(err)}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtypes", default=",".join(SAMPLES), help=f"of {', '.join(SAMPLES)}")
    parser.add_argument("--cases", default="", help="words that names contain (all)")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds for all of it")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one sample")
    parser.add_argument("--again", action="store_true", help="also what --out has already")
    parser.add_argument("--out", type=Path, default=Path("out/torch_conformance"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
