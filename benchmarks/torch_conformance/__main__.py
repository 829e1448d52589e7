"""PyTorch's samples of its own operators and modules, end to end, beside eager PyTorch.

    pip install expecttest      # PyTorch's own lists of samples ask for it
    python -m benchmarks.torch_conformance --out out/torch_conformance
    python -m benchmarks.torch_conformance --cases fft,cumsum --again
    python -m benchmarks.torch_conformance --target cuda --jobs 16      # on a GPU

Each sample is exported, imported, optimized without measuring, bundled, loaded and run. Results are
lines of ``torch.jsonl`` in ``--out``; what is there is not done again. Samples share a child
process, until one of them breaks it.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.conformance.runs import Suite, add_arguments, named, run_cases
from benchmarks.torch_conformance import table
from benchmarks.torch_conformance.samples import SAMPLES, Case, names
from benchmarks.zoo.results import Row

SUITE = Suite(
    *("torch", "torch.jsonl", "torch_conformance.md", "benchmarks.torch_conformance.worker"),
    cases_a_child=300,
    page=table.page,
)


def main() -> int:
    """Run from the command line; the exit status is 1 when an answer was wrong or none came."""
    args = _arguments()
    chosen = named(names(args.dtypes.split(",")), args)
    variant = "tvm" if args.target == "llvm" else args.target
    return run_cases(
        SUITE,
        ((name, variant) for name in chosen),
        args,
        lambda name, _: {"case": name, "target": args.target},
        _facts,
    )


def _facts(name: str) -> Row:
    case = Case.of(name)
    return {"operator": case.operator, "dtype": case.dtype}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtypes", default=",".join(SAMPLES), help=f"of {', '.join(SAMPLES)}")
    parser.add_argument("--target", default="llvm", choices=("llvm", "cuda"))
    add_arguments(parser, limit_sec=60.0, out="out/torch_conformance")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
