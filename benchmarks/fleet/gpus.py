"""One cold search on some of this machine's GPUs, in a process of its own; a line of JSON.

Whoever starts it says by ``CUDA_VISIBLE_DEVICES`` which GPUs there are.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

import collage
from benchmarks.gpu import networks
from benchmarks.gpu.engines.collage_engine import Stages

TARGETS = ("cuda", "cutlass", "cublas", "cudnn")


def main(arguments: Sequence[str]) -> None:
    """``NETWORK BATCH``: its float16 variant."""
    name, batch = arguments
    drawn = networks.network(name).inputs(int(batch), torch.Generator().manual_seed(0))
    inputs = tuple(x.half() if x.is_floating_point() else x for x in drawn)
    module = networks.build(name).half()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.pt2"
        torch.export.save(networks.export(module, inputs), model)
        begin, stages = time.perf_counter(), Stages()
        log = str(Path(folder) / "log.jsonl")
        result = collage.optimize(str(model), list(TARGETS), log=log, progress=stages)
        taken_sec = time.perf_counter() - begin
    found = {
        "taken_sec": taken_sec,
        "gpus": torch.cuda.device_count(),
        "measured": result.report.search.measured,
        "answer_sec": result.partitioning.seconds,
        "stages_sec": stages.began_sec,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
