"""How long a search takes, in this checkout beside another one: cold, and answered from its log.

``python -m benchmarks.search_time OTHER_CHECKOUT`` writes ``benchmarks/results/search_time.md``.
Each search runs in a process of its own, checkouts in turns: first with neither log nor compiled
objects, then again with the log and the objects that it left. Ratios are taken within a round.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import onnx
import typer

from benchmarks.networks.models import before_softmax, light_model
from benchmarks.timing.machine import machine, now
from benchmarks.timing.statistics import Spread, ratio_spread

TARGETS = ("llvm", "onednn", "openblas")
KINDS = ("cold", "from the log")
RESULTS = Path(__file__).parent / "results"
_HERE = Path(__file__).resolve().parents[1]

_SEARCH = """
import json, sys, time
begin = time.perf_counter()
import collage
model, log, targets = sys.argv[1:]
result = collage.optimize(model, targets.split(","), log=log)
stats = result.report.search
print(json.dumps({"wall_sec": time.perf_counter() - begin, "measured": stats.measured}))
"""


@dataclass(frozen=True)
class Search:
    """One search: seconds from the process's first import to the result, and what it measured."""

    wall_sec: float
    measured: int


def search(checkout: Path, model: Path, folder: Path) -> Search:
    """Run one search in a process of its own.

    Parameters
    ----------
    checkout : Path
        Whose code, and whose ``.venv`` where it has one.
    model : Path
        An ONNX file.
    folder : Path
        Holds the log and the compiled objects of earlier searches, and gets those of this one.
    """
    own = checkout / ".venv" / "bin" / "python"
    python = str(own) if own.exists() else sys.executable
    environment = {
        **os.environ,
        "PYTHONPATH": str(checkout),
        "COLLAGE_CACHE_DIR": str(folder / "cache"),
    }
    done = subprocess.run(
        [python, "-c", _SEARCH, str(model), str(folder / "log.jsonl"), ",".join(TARGETS)],
        cwd=checkout,
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return Search(**json.loads(done.stdout.splitlines()[-1]))


def page(model: str, commits: tuple[str, str], rounds: list[dict[str, list[Search]]]) -> str:
    """The results as Markdown.

    Parameters
    ----------
    model : str
        Its name.
    commits : tuple of str
        The other checkout's and this one's.
    rounds : list of dict
        By kind of search, the other checkout's and this one's.
    """
    facts = machine()
    lines = [
        f"# How long a search of {model} takes, before and after",
        "",
        "Seconds from a process's first import to the result, median (least to most); the ratio is",
        "taken within each round, median (quartiles). Cold: neither log nor compiled objects.",
        "",
        f"- Machine: {facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB",
        f"- Targets {', '.join(TARGETS)}; {len(rounds)} rounds, checkouts in turns; {now()}",
        f"- Before: commit {commits[0]}; after: commit {commits[1]}",
        "",
        "| search | before, s | after, s | after / before | measured before | after |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for kind in KINDS:
        before, after = ([round_[kind][side] for round_ in rounds] for side in (0, 1))
        ratio = ratio_spread([s.wall_sec for s in after], [s.wall_sec for s in before])
        lines.append(
            f"| {kind} | {_seconds(before)} | {_seconds(after)} | {_ratio(ratio)} "
            f"| {_counts(before)} | {_counts(after)} |"
        )
    return "\n".join(lines) + "\n"


def _seconds(searches: list[Search]) -> str:
    times = [search.wall_sec for search in searches]
    return f"{Spread.of(times).median:.1f} ({min(times):.1f}–{max(times):.1f})"


def _ratio(ratio: Spread) -> str:
    return f"{ratio.median:.2f} ({ratio.lower_quartile:.2f}–{ratio.upper_quartile:.2f})"


def _counts(searches: list[Search]) -> str:
    counts = sorted({search.measured for search in searches})
    return "–".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))


def _commit(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main(
    other: Annotated[Path, typer.Argument(help="A checkout to compare with.")],
    model: Annotated[str, typer.Option(help="A light model of the onnx package.")] = "resnet50",
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    out: Annotated[Path, typer.Option()] = RESULTS / "search_time.md",
) -> None:
    """Time searches in two checkouts, in turns."""
    checkouts = (other.resolve(), _HERE)
    commits = (_commit(checkouts[0]), _commit(checkouts[1]))
    measured: list[dict[str, list[Search]]] = []
    with tempfile.TemporaryDirectory(prefix="search-time-") as name:
        file = Path(name) / f"{model}.onnx"
        onnx.save(before_softmax(light_model(model)), file)
        for number in range(rounds):
            found: dict[str, list[Search]] = {kind: [] for kind in KINDS}
            for kind in KINDS:
                for side, checkout in enumerate(checkouts):
                    folder = Path(name) / f"{number}-{side}"
                    folder.mkdir(exist_ok=True)
                    found[kind].append(search(checkout, file, folder))
                    typer.echo(
                        f"round {number + 1} of {rounds}, {kind}, {commits[side]}: "
                        f"{found[kind][-1].wall_sec:.1f} s"
                    )
            measured.append(found)
    out.write_text(page(model, commits, measured), encoding="utf-8")
    typer.echo(f"written to {out}")


if __name__ == "__main__":
    typer.run(main)
