"""The ONNX standard's node cases, end to end, on each choice of backends.

    python -m benchmarks.conformance --out out/conformance
    python -m benchmarks.conformance --backends tvm --cases lstm,gru --again
    python -m benchmarks.conformance --backends "onnxruntime itself,openvino itself"
    python -m benchmarks.conformance --backends cuda,"cuda libraries" --jobs 16    (on a GPU)

Each case is imported, optimized without measuring, exported, loaded and run, and compared with
the standard's own answers. Results are lines of ``conformance.jsonl`` in ``--out``; what is there
is not done again. Cases share a child process, until one of them breaks it.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from benchmarks.conformance import table
from benchmarks.conformance.cases import cases
from benchmarks.conformance.runs import ON_A_GPU, PEERS, Suite, add_arguments, named, run_cases
from benchmarks.zoo.results import Row

CHOICES = ("tvm", "onednn", "openblas", "openvino", "onnxruntime", "all", *PEERS)
SUITE = Suite(
    *("onnx", "conformance.jsonl", "conformance.md", "benchmarks.conformance.worker"),
    cases_a_child=200,
    page=table.page,
)


def main() -> int:
    """Run from the command line; the exit status is 1 when an answer was wrong or none came."""
    args = _arguments()
    names = _spread(named(cases(), args))
    return run_cases(
        SUITE,
        ((name, backends) for name in names for backends in args.backends.split(",")),
        args,
        lambda name, backends: {"case": name, "backends": backends},
        _facts,
    )


def _spread(names: Sequence[str]) -> list[str]:
    """A case of each operator first, then a second one of each: what is cut off has met them all.

    What spells operators out counts as an operator of its own.
    """
    met: Counter[tuple[bool, str]] = Counter()
    places = {}
    for name in names:
        kind = "_expanded" in name, cases()[name].operator
        met[kind] += 1
        places[name] = met[kind]
    return sorted(names, key=places.__getitem__)


def _facts(name: str) -> Row:
    case = cases()[name]
    return {"operator": case.operator, "float32": case.has_float32}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = ", ".join((*CHOICES, *ON_A_GPU))
    parser.add_argument("--backends", default=",".join(CHOICES), help=f"of {known}")
    add_arguments(parser, limit_sec=120.0, out="out/conformance")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
