"""A search of a small network on a GPU behind TVM's RPC tracker, beside the same search here.

    python -m benchmarks.fleet.behind_tracker --out FOLDER

The tracker and the server are TVM's own programs, on loopback, started and ended here. Both
searches begin with nothing compiled, tuned or logged. What came out is in ``behind_tracker.json``
of the folder: whether both answers are right, and how the times of what both timed compare.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor, nn

import collage
from benchmarks.timing.machine import commit, machine, now
from collage.cost.database import JsonLinesDatabase
from collage.cost.database.record import PARTITION
from collage.testing.fixtures.rpc_fleet import RpcFleet

TARGETS = ("cuda", "cublas", "cudnn")
KEY = "card"
TOLERANCE = 1e-2

app = typer.Typer(add_completion=False)


class Block(nn.Module):
    """Two convolutions and what is added to them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.second(torch.relu(self.first(x))))


class Small(nn.Module):
    """Convolutions, a pool, a layer norm and dense layers: something for every library."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 7, stride=2, padding=3)
        self.blocks = nn.Sequential(
            nn.MaxPool2d(3, stride=2, padding=1),
            Block(64),
            nn.Conv2d(64, 128, 3, stride=2, padding=1),
            Block(128),
        )
        self.norm = nn.LayerNorm(128)
        self.wide, self.head = nn.Linear(128, 512), nn.Linear(512, 1000)

    def forward(self, image: Tensor) -> Tensor:
        x = self.blocks(torch.relu(self.stem(image))).mean((2, 3))
        logits: Tensor = self.head(nn.functional.gelu(self.wide(self.norm(x))))
        return logits


def network() -> tuple[nn.Module, Tensor]:
    """Seeded, in float16, with what it is called on."""
    torch.manual_seed(0)
    return Small().eval().half(), torch.randn(8, 3, 128, 128).half()


def search(workers: str, folder: Path) -> dict[str, Any]:
    """A cold search, and what its bundle computes.

    Parameters
    ----------
    workers : str
        As ``collage.optimize`` takes it.
    folder : Path
        Empty; gets caches, log and bundle.
    """
    module, image = network()
    os.environ["COLLAGE_CACHE_DIR"] = str(folder / "cache")
    program = torch.export.export(module, (image,))
    begin = time.perf_counter()
    result = collage.optimize(program, list(TARGETS), workers=workers, log=folder / "log.jsonl")
    taken_sec = time.perf_counter() - begin
    bundle = collage.load(result.export(folder / "bundle"))
    errors = []
    for seed in (1, 2):
        x = torch.randn(image.shape, generator=torch.Generator().manual_seed(seed)).half()
        with torch.no_grad():
            expected = module.double()(x.double()).numpy()
        found = np.asarray(bundle(x.numpy()), np.float64)
        errors.append(float(np.abs(found - expected).max() / np.abs(expected).max()))
    records = JsonLinesDatabase(folder / "log.jsonl").records()
    timed = [r for r in records if r.key.kind == PARTITION]
    return {
        "workers": workers.split("?", maxsplit=1)[0].split(":", maxsplit=1)[0],
        "taken_sec": taken_sec,
        "errors": errors,
        "answer_sec": result.partitioning.seconds,
        "end_to_end": [asdict(row) for row in result.report.end_to_end],
        "use": [asdict(use) for use in result.report.workers],
        "devices": sorted({r.key.device for r in timed}),
        "invalid": sorted({r.cost.reason for r in timed if not r.cost.is_valid}),
        "timed": {
            f"{r.key.workload} {r.key.target}": r.cost.median_sec for r in timed if r.cost.is_valid
        },
        "partitions": [
            {"backend": part.backend, "nodes": list(part.nodes)}
            for part in result.report.partitions
            if not part.inline
        ],
    }


def ratios(here: dict[str, float], there: dict[str, float]) -> dict[str, Any]:
    """Of the times of what both timed, there to here: geometric mean, median and extremes."""
    both = sorted(there[name] / here[name] for name in here.keys() & there.keys())
    if not both:
        return {"both": 0}
    mean = math.exp(statistics.fmean(map(math.log, both)))
    quarter = len(both) // 4
    return {
        "both": len(both),
        "geometric_mean": mean,
        "median": statistics.median(both),
        "quartiles": [both[quarter], both[-1 - quarter]],
        "extremes": [both[0], both[-1]],
    }


@app.command()
def main(out: Annotated[Path, typer.Option(help="folder of the results")] = Path("out")) -> None:
    """Search behind a tracker, then here."""
    out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"about": {**machine(), "commit": commit(), "date": now()}}
    with tempfile.TemporaryDirectory(prefix="collage-tracker-") as name:
        with RpcFleet(1, KEY) as fleet:
            found["behind"] = search(fleet.url, _empty(Path(name) / "behind"))
        found["here"] = search("local", _empty(Path(name) / "here"))
    found["there_to_here"] = ratios(found["here"]["timed"], found["behind"]["timed"])
    (out / "behind_tracker.json").write_text(json.dumps(found, indent=1) + "\n")
    shown = {side: {k: v for k, v in found[side].items() if k != "timed"}
             for side in ("behind", "here")}  # fmt: skip
    print(json.dumps({**shown, "there_to_here": found["there_to_here"]}, indent=1))
    wrong = [e for side in ("behind", "here") for e in found[side]["errors"] if not e < TOLERANCE]
    if wrong:
        raise typer.Exit(1)


def _empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


if __name__ == "__main__":
    app()
