"""Networks in no list of ours, whatever the installed packages of models have.

    python -m benchmarks.zoo.unseen --out out/unseen                 # a network of each family
    python -m benchmarks.zoo.unseen --each word --sources timm       # more of timm's
    python -m benchmarks.zoo.unseen --variants onednn --cases vit    # compiled and run
    python -m benchmarks.zoo.unseen --variants onednn --search-sec 60

The smallest network of a family is made with seeded random weights, for the smallest images that it
takes; then it is exported, imported and evaluated in numpy, or compiled and run, beside PyTorch in
float64. A network has a child process with limits of time and memory. Results are lines of
``unseen.jsonl`` in ``--out``, and what is there is not done again.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from benchmarks.conformance.runs import Suite, add_arguments, named, run_cases
from benchmarks.zoo.unseen import table
from benchmarks.zoo.unseen.sources import SOURCES, names
from benchmarks.zoo.unseen.trial import VARIANTS

# What a package takes to be imported is paid for a few networks at once; one that breaks its
# process, or is late, ends it.
SUITE = Suite(
    *("unseen", "unseen.jsonl", "unseen.md", "benchmarks.zoo.unseen.worker"),
    cases_a_child=8,
    page=table.page,
)


def main() -> int:
    """Run from the command line; the exit status is 1 when an answer was wrong or none came."""
    args = _arguments()
    chosen = named(names(args.each, args.sources.split(",")), args)
    asked = ((name, variant) for name in chosen for variant in args.variants.split(","))

    def request(name: str, variant: str) -> dict[str, Any]:
        return {
            **{"name": name, "variant": variant, "check_sec": args.check_sec},
            **{"search_sec": args.search_sec, "memory_gib": args.memory},
        }

    return run_cases(SUITE, asked, args, request, lambda _: {})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sources", default=",".join(SOURCES), help=f"of {', '.join(SOURCES)}")
    parser.add_argument(
        "--each",
        choices=("family", "word"),
        default="family",
        help="a network of each family, or of each first word of a family's names",
    )
    parser.add_argument("--variants", default="import", help=f"of {', '.join(VARIANTS)}")
    parser.add_argument("--check-sec", type=float, default=60.0, help="for an evaluation in numpy")
    parser.add_argument(
        "--search-sec", type=float, default=0.0, help="for a search (none: what a backend takes)"
    )
    parser.add_argument("--memory", type=float, default=12.0, help="GiB for one network")
    add_arguments(parser, limit_sec=180.0, out="out/unseen")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
