"""How much faster a search is with many workers: ``python -m benchmarks.fleet``.

Every search runs in a process of its own. What came out is kept in
``benchmarks/results/fleet.json``, and the page ``benchmarks/results/fleet.md`` is written from all
of that: simulated workers (see :mod:`benchmarks.fleet.simulated_search`), and with
``--device cuda`` two GPUs of this machine beside one of them, each of whose steps is in
``fleet_gpus.jsonl`` beside the page as soon as it is made.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.fleet.simulated_search import BUILDERS, Taken
from benchmarks.timing.machine import machine, now

RESULTS = Path(__file__).parents[1] / "results"
_NETWORK, _BATCH = "resnet50", 16
_NONE, _KEPT_OBJECTS = "none", "kept"

_HEAD = """# Searches on many workers

## Simulated devices

The question is real: a network's candidates for a GPU, asked by the search itself, recorded in a
log, on devices that are compared by the reference set first. The workers only wait: {builders}
builders for each device, 1 s for a build (CUTLASS 3 s) and 1.5 s for timing, up to 60 % more or
less. The time is from the first question to the last answer. The efficiency is the speed-up over
the fewest workers (taken for as many times one), by the number of workers. Busy is the share of all
devices' time in which they timed what the search asked, which may be more than one worker is asked.
At best, a single workload is never faster than its build and its timing. *Far*: devices wait on the
other side of a network, in processes of a Dask cluster on loopback. The load is that of the
machine, which has two cores, right after.

| network | workers | | workloads | rounds | time, s | efficiency | busy | at best | load |
| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""

_GPUS = """
## Two GPUs of one host

`{network}`, float16, batch {batch}: `python -m benchmarks.fleet --device cuda`. No search has a
log. The compilers' results are nobody's (none), or those of the search in the row before (kept),
as a team has them.

| GPUs | compiled before | time, s | workloads | answer, ms |
| ---: | --- | ---: | ---: | ---: |"""

app = typer.Typer(add_completion=False)


@app.command()
def main(
    device: Annotated[str, typer.Option(help="simulated or cuda")] = "simulated",
    network: Annotated[list[str] | None, typer.Option(help="light models")] = None,
    workers: Annotated[str, typer.Option(help="how many, in turn")] = "64,32,16,8,4,2,1",
    between: Annotated[str, typer.Option(help="near, far or both, in turn")] = "near,far",
    rounds: Annotated[int, typer.Option(help="searches on GPUs, of each kind")] = 2,
    results: Annotated[Path, typer.Option(help="folder")] = RESULTS,
) -> None:
    """Search, and write the page."""
    path = results / "fleet.json"
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if device == "cuda":
        found: list[dict[str, Any]] = []
        kept["gpus"] = {"machine": machine(), "date": now(), "searches": found}
        for search in _on_gpus(rounds, results / "fleet_gpus.jsonl"):
            found.append(search)
            _write(kept, results)
        return
    for name in network or ("densenet121", "resnet50"):
        for count in workers.split(","):
            for distance in between.split(","):
                arguments = [name, count, distance]
                taken = _run("benchmarks.fleet.simulated_search", arguments, {})
                taken["load"] = os.getloadavg()[0]
                kept.setdefault("simulated", {})[" ".join(arguments)] = taken
                _write(kept, results)


def _on_gpus(rounds: int, progress: Path) -> Iterator[dict[str, Any]]:
    """Searches without a log with one GPU and with two, in turns: each with nothing compiled
    before, then once more with what it compiled."""
    names = [part for part in os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",") if part]
    if len(names) < 2:
        raise typer.BadParameter("two GPUs are needed, see CUDA_VISIBLE_DEVICES")
    progress.unlink(missing_ok=True)
    for _ in range(rounds):
        for seen in (names[:1], names[:2]):
            # What one search compiles must not be there for another number of GPUs.
            with tempfile.TemporaryDirectory(prefix="collage-fleet-") as cache:
                environment = {"CUDA_VISIBLE_DEVICES": ",".join(seen), "COLLAGE_CACHE_DIR": cache}
                for compiled in (_NONE, _KEPT_OBJECTS):
                    arguments = [_NETWORK, str(_BATCH), compiled, str(progress)]
                    yield _run("benchmarks.fleet.gpus", arguments, environment)


def _run(module: str, arguments: list[str], environment: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, **environment},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(module, *arguments, found, flush=True)
    return found


def _write(kept: dict[str, Any], results: Path) -> None:
    (results / "fleet.json").write_text(json.dumps(kept, indent=1) + "\n")
    (results / "fleet.md").write_text(page(kept))


def page(kept: dict[str, Any]) -> str:
    """The page of results.

    Parameters
    ----------
    kept : dict
        What ``fleet.json`` holds.
    """
    lines = [_HEAD.format(builders=BUILDERS)]
    searches = sorted(kept.get("simulated", {}).values(), key=_order)
    fewest = {s["network"]: s for s in reversed(searches) if not s["network_between"]}
    lines += [_row(found, fewest.get(found["network"], found)) for found in searches]
    lines += ["", *kept["simulated_notes"]] if "simulated_notes" in kept else []
    lines += [_GPUS.format(network=_NETWORK, batch=_BATCH)]
    gpus = kept.get("gpus", {})
    lines += [
        f"| {s['gpus']} | {s.get('compiled', _NONE)} | {s['taken_sec']:.0f} | {s['measured']} "
        f"| {s['answer_sec'] * 1e3:.3f} |"
        for s in gpus.get("searches", [])
    ] or ["| 2 against 1 | not run: no two GPUs were at hand | | | |"]
    lines += ["", *gpus["notes"]] if "notes" in gpus else []
    return "\n".join([*lines, ""])


def _row(found: dict[str, Any], fewest: dict[str, Any]) -> str:
    taken = Taken(**{name: value for name, value in found.items() if name != "load"})
    speedup = fewest["asking_sec"] * fewest["workers"] / taken.asking_sec
    alone = taken.busy_sec / taken.workers
    building = taken.building_sec / BUILDERS / taken.workers
    cells = [
        taken.network,
        taken.workers,
        "far" if taken.network_between else "",
        taken.measured,
        taken.rounds,
        f"{taken.asking_sec:.1f}",
        f"{speedup / taken.workers:.0%}",
        f"{taken.utilization:.0%}",
        f"{alone / max(alone, building, taken.longest_sec):.0%}",
        f"{found.get('load', 0.0):.0f}",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def _order(found: dict[str, Any]) -> tuple[str, bool, int]:
    return found["network"], found["network_between"], found["workers"]


if __name__ == "__main__":
    app()
