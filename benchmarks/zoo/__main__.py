"""The zoo, stage by stage.

    python -m benchmarks.zoo --stage import --out out/zoo
    python -m benchmarks.zoo --stage compile --variants llvm,sm_90a --networks plain,timm/swin
    python -m benchmarks.zoo --stage run --device cuda --budget 500 --out out/zoo

A network's stage runs in a child process with limits of memory and time. Each result is a line of
``zoo.jsonl`` in ``--out``, and what is there is not done again: the same command completes a table
that was cut off. The tables are written anew after each network.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.timing.child import ChildError, ReplaceableChild
from benchmarks.timing.machine import commit
from benchmarks.zoo import table
from benchmarks.zoo.families import NETWORKS
from benchmarks.zoo.results import Results, Row
from benchmarks.zoo.samples import SAMPLES

NETWORKS_A_CHILD = 12
VARIANTS = {"import": "torch", "compile": "llvm,sm_90a,sm_80"}


def main() -> int:
    """Run from the command line; the exit status is 1 when a network failed that was run."""
    args = _arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    results = Results(args.out / "zoo.jsonl")
    names = chosen(args.networks)
    if args.stage == "run":
        from benchmarks.zoo.running import run_all

        return run_all(names, results, args)
    variants = (args.variants or VARIANTS[args.stage]).split(",")
    begin = time.monotonic()
    good = True
    with (
        tempfile.TemporaryDirectory(prefix="collage-zoo-") as folder,
        # What a package takes to be imported is paid for a few networks at once.
        ReplaceableChild(
            *("benchmarks.zoo.worker", [str(args.memory)], Path(folder) / "stderr"),
            most=NETWORKS_A_CHILD,
        ) as child,
    ):
        for name, variant in ((name, variant) for name in names for variant in variants):
            if not args.again and (name, args.stage, variant) in results.rows:
                continue
            if time.monotonic() - begin > args.budget:
                print("out of time; the same command goes on from here", flush=True)
                return 1
            row = _one(name, variant, args, child, Path(folder))
            good &= "failure" not in row
            results.add(row)
            print(table.line(row), flush=True)
            table.write(results, args.out)
    print(table.summary(results, args.stage), flush=True)
    return int(not good)


def chosen(wanted: str) -> list[str]:
    """The networks whose names contain one of these words, in the order of the words.

    A word with an @ before it is a sample's name. What stands after = in a word (for the stage
    ``run``: an element type, and x with a batch) follows each name.

    Raises
    ------
    SystemExit
        For a word that no name contains.
    """
    if not wanted:
        return list(NETWORKS)
    found: dict[str, None] = {}
    for asked in wanted.split(","):
        word, *how = asked.split("=")
        if word.startswith("@") and word[1:] in SAMPLES:
            matching = list(SAMPLES[word[1:]])
        else:
            matching = [word] if word in NETWORKS else [name for name in NETWORKS if word in name]
        if not matching:
            raise SystemExit(f"no network's name contains '{word}'")
        found.update(dict.fromkeys("=".join([name, *how]) for name in matching))
    return list(found)


def _one(
    name: str, variant: str, args: argparse.Namespace, child: ReplaceableChild, folder: Path
) -> Row:
    row: Row = {"network": name, "stage": args.stage, "variant": variant, "commit": commit()}
    begin = time.monotonic()
    if args.stage == "import":
        request = {"form": variant, "check_sec": args.check_sec}
    else:
        bundle = str(folder / "bundle")
        dtype = "float32" if variant == "llvm" else "float16"
        request = {"architecture": variant, "dtype": dtype, "out": bundle}
    try:
        answer = child.ask({"do": args.stage, "network": name, **request}, float(args.limit))
    except ChildError as err:
        answer = {"failed_in": args.stage, "failure": str(err)}
    return {**row, **answer, "wall_sec": time.monotonic() - begin}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stage", choices=("import", "compile", "run"), default="import")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of the stage run")
    parser.add_argument(
        "--networks",
        default="",
        help="words that names contain, or @gpu, @cpu, @quick (all); stage run: =bfloat16x8 after "
        "one is the element type and the batch",
    )
    parser.add_argument(
        "--variants", default="", help="import: torch,onnx; compile: llvm,sm_80,sm_90a"
    )
    parser.add_argument("--budget", type=float, default=1e9, help="seconds for all of it")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one network")
    parser.add_argument("--memory", type=float, default=0.0, help="GiB for one network (no limit)")
    parser.add_argument(
        "--check-sec", type=float, default=60.0, help="seconds for evaluating an import in numpy"
    )
    parser.add_argument(
        "--search-sec", type=float, help="stage run: the time budget of each search"
    )
    parser.add_argument(
        "--targets", default="", help="stage run: of the search, for example llvm,onednn,openvino"
    )
    parser.add_argument(
        "--compile-peer",
        default="",
        help="stage run: words of names to run torch.compile beside",
    )
    parser.add_argument(
        "--abreast", type=int, default=1, help="stage run: networks prepared at once on each GPU"
    )
    parser.add_argument("--again", action="store_true", help="also what --out has already")
    parser.add_argument("--out", type=Path, default=Path("out/zoo"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
