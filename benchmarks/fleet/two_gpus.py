"""Cold searches with one GPU of a host and with two, in turns.

    python -m benchmarks.fleet.two_gpus --out FOLDER

Each search is a process of its own with cache folders of its own, so that nothing is compiled,
tuned or logged before. What came out is in ``two_gpus.json`` and ``two_gpus.md`` of the folder as
soon as it is known, each step in ``two_gpus.jsonl``; the same command again goes on from there.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.timing.machine import commit, machine, now
from collage.report.data import EQUAL

NETWORK, BATCH = "resnet50", 16
_ORDER = (1, 2, 2, 1)
"""GPUs of each search in turn: what a machine gains or loses with time does so for both."""
_LEFT_SEC = 10.0
"""Of the time, for writing what came out."""
_LONGER = 1.15
"""A search may take that much longer than the longest of its kind."""

app = typer.Typer(add_completion=False)


@dataclass
class Record:
    """What is known so far.

    Attributes
    ----------
    about : dict
        Machine, commit, network.
    searches : list of dict
        What each that ended found, as :mod:`benchmarks.fleet.gpus` prints it.
    cut_off : list of dict
        Those that did not end: GPUs, seconds, why.
    """

    about: dict[str, Any]
    searches: list[dict[str, Any]] = field(default_factory=list)
    cut_off: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> Record:
        """From the files of an earlier run; what ran on another commit or machine is not taken."""
        card = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        fixed = {"commit": commit(), "network": NETWORK, "batch": BATCH, "cpu": machine()["cpu"]}
        path = folder / "two_gpus.json"
        if path.is_file():
            kept = json.loads(path.read_text())
            if all(kept["about"].get(name) == value for name, value in fixed.items()):
                return cls(**kept)
        return cls({**fixed, **machine(), "visible": card, "gpus": _cards(), "date": now()})

    def write(self, folder: Path) -> None:
        """As JSON, and as a page."""
        (folder / "two_gpus.json").write_text(json.dumps(vars(self), indent=1) + "\n")
        (folder / "two_gpus.md").write_text(page(self))

    def taken(self, gpus: int) -> list[float]:
        """Seconds of the searches with so many GPUs."""
        return [one["taken_sec"] for one in self.searches if one["gpus"] == gpus]

    def next_gpus(self, left_sec: float, most: int) -> int | None:
        """With how many GPUs to search next; None when there is no time, or enough is known.

        Parameters
        ----------
        left_sec : float
            Until the run must end.
        most : int
            Searches in all.
        """
        if len(self.searches) >= most:
            return None
        done = [one["gpus"] for one in self.searches]
        for gpus in _ORDER * (most // len(_ORDER) + 1):
            if gpus in done:
                done.remove(gpus)
                continue
            longest = max(self.taken(gpus), default=0.0)
            return gpus if left_sec > _LONGER * longest else None
        return None


@app.command()
def main(
    out: Annotated[Path, typer.Option(help="folder of the results")] = Path("out"),
    budget: Annotated[float, typer.Option(help="seconds, in all")] = 520.0,
    searches: Annotated[int, typer.Option(help="of both kinds together, at most")] = 4,
) -> None:
    """Search until the time is up, or enough is known."""
    begin = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",") if name]
    if len(visible) < 2:
        raise typer.BadParameter("two GPUs are needed, see CUDA_VISIBLE_DEVICES")
    record = Record.read(out)
    record.write(out)
    while True:
        left_sec = begin + budget - _LEFT_SEC - time.monotonic()
        gpus = record.next_gpus(left_sec, searches)
        if gpus is None or left_sec <= 0:
            break
        print(f"== a cold search with {gpus} GPUs, {left_sec:.0f} s left", flush=True)
        found, why = cold_search(visible[:gpus], out / "two_gpus.jsonl", left_sec)
        if found is None:
            cut = {"gpus": gpus, "after_sec": round(left_sec, 1), "why": why}
            record.cut_off.append(cut)
            record.write(out)
            break
        record.searches.append(found)
        record.write(out)
    print((out / "two_gpus.md").read_text(), flush=True)


def cold_search(
    visible: Sequence[str], progress: Path, limit_sec: float
) -> tuple[dict[str, Any] | None, str]:
    """One search in a process and with caches of its own; or nothing, and why it did not end.

    Parameters
    ----------
    visible : sequence of str
        GPUs.
    progress : Path
        Gets its steps.
    limit_sec : float
        When it is ended, with all that it started.
    """
    command = [sys.executable, "-m", "benchmarks.fleet.gpus"]
    with tempfile.TemporaryDirectory(prefix="collage-two-gpus-") as cache:
        environment = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": ",".join(visible),
            "COLLAGE_CACHE_DIR": cache,
        }
        process = subprocess.Popen(
            [*command, NETWORK, str(BATCH), "none", str(progress)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit_sec)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.communicate(timeout=_LEFT_SEC / 2)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
            return None, "the time was up"
    lines = output.splitlines()
    if process.returncode or not lines:
        return None, f"exit status {process.returncode}: {' '.join(lines[-3:])[-300:]}"
    found: dict[str, Any] = json.loads(lines[-1])
    return found, ""


def page(record: Record) -> str:
    """The results as a page.

    Parameters
    ----------
    record : Record
        What is known.
    """
    about = record.about
    lines = [
        "# Two GPUs of one host",
        "",
        f"`{about['network']}`, float16, batch {about['batch']}; nothing compiled, tuned or logged "
        f"before a search. {about.get('gpus', '')}, {about.get('cores', '?')} cores; commit "
        f"{about['commit'] or 'unknown'}, {about.get('date', '')}.",
        "",
        "| GPUs | time, s | until the candidates are timed, s | whole models, s | workloads "
        "| busy | answer, ms |",
        "| ---: | ---: | ---: | ---: | ---: | --- | ---: |",
        *map(_row, record.searches),
        *(
            f"| {c['gpus']} | not within {c['after_sec']:.0f}: {c['why']} | | | | | |"
            for c in record.cut_off
        ),
        "",
        *_gain(record),
        *_answers(record.searches),
    ]
    return "\n".join([*lines, ""])


def _row(found: Mapping[str, Any]) -> str:
    began = found["stages_sec"]
    compiling = began.get("compile", found["taken_sec"])
    busy = ", ".join(f"{use['name']} {use['busy_sec']:.0f} s" for use in found["workers"])
    left = "; ".join(f"{u['name']}: {u['left_out']}" for u in found["workers"] if u["left_out"])
    cells = [
        str(found["gpus"]),
        f"{found['taken_sec']:.1f}",
        f"{compiling:.1f}",
        f"{found['taken_sec'] - compiling:.1f}",
        str(found["measured"]),
        busy + (f" (left out: {left})" if left else ""),
        f"{found['answer_sec'] * 1e3:.3f}",
    ]
    return f"| {' | '.join(cells)} |"


def _gain(record: Record) -> list[str]:
    one, two = record.taken(1), record.taken(2)
    if not one or not two:
        return ["Two GPUs beside one: not both were run to their end.", ""]
    ratio = statistics.median(one) / statistics.median(two)
    pairs = sorted(a / b for a in one for b in two)
    spread = f"; of all pairs {pairs[0]:.2f} to {pairs[-1]:.2f}" if len(pairs) > 1 else ""
    return [f"Two GPUs are **{ratio:.2f}** times as fast as one{spread}.", ""]


def _answers(searches: Sequence[Mapping[str, Any]]) -> list[str]:
    """How the answers of all searches differ from that of the first."""
    if len(searches) < 2:
        return []
    first, lines = searches[0], []
    for number, other in enumerate(searches[1:], 2):
        left, right = difference(first["partitions"], other["partitions"])
        if not left and not right:
            lines.append(f"Search {number} ({other['gpus']} GPUs): the same answer as the first.")
            continue
        here, there = (_known_sec(p) for p in (left, right))
        apart = abs(there - here) / first["answer_sec"]
        word = "a tie" if apart <= EQUAL else "no tie"
        lines.append(
            f"Search {number} ({other['gpus']} GPUs): {len(right)} of {len(other['partitions'])} "
            f"partitions are others than in the first. They take {there * 1e3:.4f} ms, those in "
            f"their place {here * 1e3:.4f} ms: {apart:.1%} of the whole, {word}."
        )
    return [*lines, ""]


Partition = Mapping[str, Any]


def difference(
    one: Sequence[Partition], other: Sequence[Partition]
) -> tuple[list[Partition], list[Partition]]:
    """The partitions of each answer that the other has not.

    Parameters
    ----------
    one, other : sequence of mapping
        With ``backend``, ``nodes`` and ``sec``.
    """
    names = [{(p["backend"], tuple(p["nodes"])) for p in answer} for answer in (one, other)]
    return (
        [p for p in one if (p["backend"], tuple(p["nodes"])) not in names[1]],
        [p for p in other if (p["backend"], tuple(p["nodes"])) not in names[0]],
    )


def _known_sec(partitions: Sequence[Partition]) -> float:
    return float(sum(partition["sec"] or 0.0 for partition in partitions))


def _cards() -> str:
    """What the driver's own program says of the GPUs; nothing where it is not there."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return ""
    names = done.stdout.splitlines()
    return f"{len(names)} {names[0]}" if names else ""


if __name__ == "__main__":
    app()
