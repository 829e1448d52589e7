"""Runs a compiled library in a process of its own and says which threads worked.

    python run_library.py LIBRARY INPUTS.npz FUNCTION SECONDS

Runs until the calling thread has used SECONDS of CPU time, however busy the machine is. Prints one
JSON object: ``busy_threads`` (threads that used more than a fifth of what the busiest one did)
and ``digest`` (of the output's bytes). Needs only TVM's runtime and numpy.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import tvm
from tvm import relax


def _thread_seconds() -> dict[str, float]:
    """CPU seconds that every thread of this process has used."""
    tick_sec = 1.0 / os.sysconf("SC_CLK_TCK")
    seconds = {}
    for task in Path("/proc/self/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        seconds[task.name] = (int(fields[11]) + int(fields[12])) * tick_sec
    return seconds


def main() -> None:
    library, inputs_file, function, seconds = sys.argv[1:]
    with np.load(inputs_file) as stored:
        inputs = [tvm.runtime.tensor(stored[name]) for name in stored.files]
    vm = relax.VirtualMachine(tvm.runtime.load_module(library), tvm.cpu())
    run = vm[function]
    output = run(*inputs)
    # Libraries may start threads when they are loaded and let them spin for a moment.
    time.sleep(0.5)
    before, start = _thread_seconds(), time.thread_time()
    while time.thread_time() - start < float(seconds):
        output = run(*inputs)
    used = [sec - before.get(name, 0.0) for name, sec in _thread_seconds().items()]
    busy = sum(sec > 0.2 * max(used) for sec in used)
    print(json.dumps({"busy_threads": busy, "digest": hashlib.sha256(output.numpy()).hexdigest()}))


if __name__ == "__main__":
    main()
