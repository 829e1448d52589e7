"""One cold search on some of this machine's GPUs, in a process of its own; a line of JSON.

Whoever starts it says by ``CUDA_VISIBLE_DEVICES`` which GPUs there are. Every step is in a file as
soon as it is made, so that a search that is cut off has left how far it came.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

import collage
from benchmarks.gpu import networks
from benchmarks.gpu.engines.collage_engine import Stages
from collage.cost.progress import ProgressEvent

TARGETS = ("cuda", "cutlass", "cublas", "cudnn")


class Written(Stages):
    """Shows progress, and writes it to a file as well."""

    def __init__(self, path: Path, gpus: int, compiled: str) -> None:
        super().__init__()
        self._path, self._search = path, {"gpus": gpus, "compiled": compiled}
        self._began = time.perf_counter()

    def __call__(self, event: ProgressEvent) -> None:
        super().__call__(event)
        at_sec = round(time.perf_counter() - self._began, 2)
        line = json.dumps({**self._search, "at_sec": at_sec, **asdict(event)})
        with self._path.open("a") as file:
            file.write(f"{line}\n")


def main(arguments: Sequence[str]) -> None:
    """``NETWORK BATCH COMPILED FILE``: the network's float16 variant, and where progress goes."""
    name, batch, compiled, file = arguments
    drawn = networks.network(name).inputs(int(batch), torch.Generator().manual_seed(0))
    inputs = tuple(x.half() if x.is_floating_point() else x for x in drawn)
    module = networks.build(name).half()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.pt2"
        torch.export.save(networks.export(module, inputs), model)
        stages = Written(Path(file), torch.cuda.device_count(), compiled)
        begin = time.perf_counter()
        log = str(Path(folder) / "log.jsonl")
        result = collage.optimize(str(model), list(TARGETS), log=log, progress=stages)
        taken_sec = time.perf_counter() - begin
    found = {
        "taken_sec": taken_sec,
        "gpus": torch.cuda.device_count(),
        "compiled": compiled,
        "measured": result.report.search.measured,
        "answer_sec": result.partitioning.seconds,
        "stages_sec": stages.began_sec,
        "building_sec": result.report.search.building_sec,
        "running_sec": result.report.search.running_sec,
        "waiting_sec": result.report.search.waiting_sec,
        "workers": [asdict(use) for use in result.report.workers],
        "partitions": [
            {"backend": part.backend, "nodes": part.nodes, "sec": part.median_sec}
            for part in result.report.partitions
            if not part.inline
        ],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
