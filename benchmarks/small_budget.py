"""What an answer within seconds is worth, on small networks that nobody has met.

``python -m benchmarks.small_budget`` writes ``benchmarks/results/small_budget.md``. Of each family
of :mod:`benchmarks.networks.drawn_networks` one network is searched within each budget and on
estimates alone, each time with no log and in a process of its own; every backend alone is compiled,
too. All bundles are then timed in turns: an answer is worth as much as its time beside that of the
best.
``--tree before=FOLDER --tree after=.`` compares checkouts, whose searches alternate.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from benchmarks.networks.drawn_networks import FAMILIES, drawn
from benchmarks.small_budget_search import TARGETS
from benchmarks.timing.machine import commit, machine, now
from collage.bundle import Bundle, load

RESULTS = Path(__file__).parent / "results"
_HERE = Path(__file__).resolve().parents[1]
_CHILD = Path(__file__).with_name("small_budget_search.py")
_ROUNDS = 11
_CALLS = 5
_ALONE = ("single:tvm", *(f"single:{name}" for name in TARGETS[1:]))


@dataclass(frozen=True)
class Answer:
    """What one search gave.

    Attributes
    ----------
    name : str
        The checkout and the budget, ``estimate`` or ``all``; a strategy.
    said : mapping
        What the search's process printed.
    load : float
        The machine's load average when it began.
    bundle : Bundle
        Loaded.
    """

    name: str
    said: Mapping[str, Any]
    load: float
    bundle: Bundle


def search(model: Path, tree: Path, how: str, name: str, folder: Path) -> Answer:
    """Search once.

    Parameters
    ----------
    model : Path
        A file.
    tree : Path
        The checkout that searches.
    how : str
        As :mod:`benchmarks.small_budget_search` takes it.
    name : str
        Of the answer.
    folder : Path
        Gets the bundle.
    """
    place, load_before = folder / name.replace(":", "-").replace(" ", "-"), os.getloadavg()[0]
    done = subprocess.run(
        [sys.executable, "-P", str(_CHILD), str(model), how, str(place)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return Answer(name, json.loads(done.stdout.splitlines()[-1]), load_before, load(place))


def times(answers: Sequence[Answer]) -> list[float]:
    """The middle of each answer's times in all rounds, in turns and in another order each time.

    Parameters
    ----------
    answers : sequence of Answer
        Of one network.
    """
    table = np.zeros((_ROUNDS, len(answers)))
    random = np.random.default_rng(0)
    for row in table:
        for index in random.permutation(len(answers)):
            row[index] = np.median(answers[index].bundle.benchmark(_CALLS, warmup=2))
    return [float(sec) for sec in np.median(table, axis=0)]


def lines_of(network: str, answers: Sequence[Answer]) -> list[str]:
    """A network's rows, those of the backends alone left out.

    Parameters
    ----------
    network : str
        Its name.
    answers : sequence of Answer
        All that are timed against each other.
    """
    seconds = times(answers)
    best_sec = min(seconds)
    best = answers[seconds.index(best_sec)].name
    return [
        f"| {network} | {one.name} | {one.said['taken_sec']:.1f} | {one.load:.0f} "
        f"| {one.said['chosen']} | {one.said['timed']} of {one.said['contenders']} "
        f"| {sec * 1e6:.0f} | {sec / best_sec:.2f} | {best} |"
        for one, sec in zip(answers, seconds, strict=True)
        if one.name not in _ALONE
    ]


def page(rows: Sequence[str]) -> str:
    """The results as Markdown.

    Parameters
    ----------
    rows : sequence of str
        Of all networks.
    """
    facts = machine()
    return "\n".join(
        [
            "# Answers within seconds",
            "",
            "`python -m benchmarks.small_budget`: one network of each family, sizes drawn at",
            "random. Seconds from the call to the written bundle; the load average as it began;",
            "timed: contenders of all; the answer's time, and that relative to the best of all",
            "answers and of every backend alone, timed in turns.",
            "",
            f"- Machine: {facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB",
            f"- Targets {', '.join(TARGETS)}; no log; {now()}; commit {commit()}",
            "",
            "| network | asked | taken, s | load | chosen | timed | µs | relative | best |",
            "| --- | --- | ---: | ---: | --- | ---: | ---: | ---: | --- |",
            *rows,
            "",
        ]
    )


def main(
    families: Annotated[list[str] | None, typer.Option("--family")] = None,
    budgets: Annotated[list[str] | None, typer.Option("--budget", help="Or: all.")] = None,
    trees: Annotated[list[str] | None, typer.Option("--tree", metavar="NAME=FOLDER")] = None,
    seed: Annotated[int, typer.Option(help="Of the networks.")] = 1,
    out: Annotated[Path, typer.Option()] = RESULTS / "small_budget.md",
) -> None:
    """Search each network within each budget, and on estimates."""
    named = dict(tree.split("=", 1) for tree in trees or [f"now={_HERE}"])
    rows: list[str] = []
    for family in families or FAMILIES:
        with tempfile.TemporaryDirectory() as place:
            folder, model = Path(place), Path(place) / "model.pt2"
            torch.export.save(drawn(family, seed), model)
            answers = [
                search(model, Path(tree).resolve(), how, f"{how} {name}", folder)
                for how in (*(budgets or ("10", "30", "all")), "estimate")
                for name, tree in named.items()
            ]
            answers += [search(model, _HERE, one, one, folder) for one in _ALONE]
            found = lines_of(f"{family} {seed}", answers)
        rows += found
        typer.echo("\n".join(found))
        out.write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
