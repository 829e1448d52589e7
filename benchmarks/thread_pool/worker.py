"""The process that a program of :mod:`benchmarks.thread_pool` runs in: times calls when asked."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import tvm
from tvm import relax

from benchmarks.timing.child import serve
from collage.backends.toolchain.children.child_boot import Line

WIDTH = 512
SETTLE_SEC, TURN_SEC = 0.1, 0.25


def main(line: Line, library: str, rows: str) -> None:
    """Answer requests until there are no more."""
    vm = relax.VirtualMachine(tvm.runtime.load_module(library), tvm.cpu())
    shape = (int(rows), WIDTH)
    x = tvm.runtime.tensor(np.random.default_rng(1).standard_normal(shape, np.float32))
    run = vm["main"]

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "load":
            run(x)
            return {}
        settled = time.perf_counter() + SETTLE_SEC
        while time.perf_counter() < settled:
            run(x)
        calls, start = 0, time.perf_counter()
        while time.perf_counter() - start < TURN_SEC:
            run(x)
            calls += 1
        # The mean, for means add up: an interruption hits long calls more often than short ones.
        return {"mean_sec": (time.perf_counter() - start) / calls}

    serve(line, answer)
