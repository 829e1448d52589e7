"""What a search can choose from: ``taskset -c 0 python -m benchmarks.zoo.alone --networks @cpu``.

TVM alone and oneDNN wherever it can, with nothing searched, in turns with onnxruntime, OpenVINO and
eager PyTorch, float32, batch 1, on one thread by the time of the process itself: a network takes
seconds, and what runs beside it hardly shows. Each network has a process of its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tvm

from benchmarks.gpu.networks import build
from benchmarks.timing.machine import commit, machine, now
from benchmarks.timing.statistics import Spread, ratio_spread
from benchmarks.winograd import compiled, in_turns
from benchmarks.zoo.__main__ import chosen
from benchmarks.zoo.families import NETWORKS
from benchmarks.zoo.importing import exported
from collage.backends.devices import CPU
from collage.pipeline.imported import import_model
from collage.targets import resolve_targets

OURS = {"TVM": ("llvm",), "oneDNN": ("llvm", "onednn")}
ROUNDS = 7
HEADER = (
    "| network | TVM ms | oneDNN ms | onnxruntime ms | OpenVINO ms | eager ms "
    "| best peer / own | errors |",
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
)

Arrays = list[np.ndarray]
Session = Callable[[], object]


def row(name: str, folder: Path) -> str:
    """A network's row: times, the ratio of the best, errors of ours and of eager PyTorch.

    Errors are root mean squares of the difference to float64, over the result's own; a network
    that PyTorch cannot run in float64 has none.
    """
    torch.set_num_threads(1)
    module = build(name, 0)
    inputs = NETWORKS[name].draw(0)
    program = exported(module, inputs, "torch")
    imported = import_model(program, CPU)
    given = [tvm.runtime.tensor(x.numpy()) for x in inputs]
    sessions: dict[str, Session] = {}
    for label, targets in OURS.items():
        function = compiled(imported.mod, resolve_targets(list(targets)), folder / label)
        sessions[label] = _call(function, given)
    sessions |= _peers(program, inputs, folder)
    sessions["eager"] = _eager(module, inputs)
    times = dict(
        zip(
            sessions,
            np.array([in_turns(list(sessions.values())) for _ in range(ROUNDS)]).T,
            strict=True,
        )
    )
    return _told(name, times, _errors(module, inputs, sessions))


def _told(name: str, times: dict[str, np.ndarray], errors: str) -> str:
    median = {label: float(np.median(spent)) for label, spent in times.items()}
    own = min(OURS, key=median.__getitem__)
    peer = min(median.keys() - OURS.keys(), key=median.__getitem__)
    ratio = ratio_spread(list(times[peer]), list(times[own]))
    labels = (*OURS, "onnxruntime", "OpenVINO", "eager")
    cells = " | ".join(f"{1e3 * median[x]:.3g}" if x in median else "refused" for x in labels)
    return f"| {name} | {cells} | {_spread(ratio)} | {errors} |"


def _spread(ratio: Spread) -> str:
    return f"{ratio.median:.2f} ({ratio.lower_quartile:.2f} to {ratio.upper_quartile:.2f})"


def _call(function: tvm.runtime.PackedFunc, given: list[Any]) -> Session:
    return lambda: function(*given)


def _peers(program: Any, inputs: tuple[torch.Tensor, ...], folder: Path) -> dict[str, Session]:
    """The sessions of onnxruntime and OpenVINO, but of one that refuses the file, which is said."""
    import onnxruntime
    import openvino

    with torch.no_grad():
        written = torch.onnx.export(program, (), dynamo=True, verbose=False)
    file = folder / "model.onnx"
    written.save(file)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    found: dict[str, Session] = {}
    try:
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        names = [i.name for i in session.get_inputs()]
        feed = {n: x.numpy() for n, x in zip(names, inputs, strict=True)}
        found["onnxruntime"] = lambda: session.run(None, feed)
    except Exception as err:  # noqa: BLE001 - onnxruntime raises anything; the cell says so
        print(f"{err}", file=sys.stderr)
    try:
        settings = {
            "INFERENCE_NUM_THREADS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        }
        request = openvino.Core().compile_model(str(file), "CPU", settings).create_infer_request()
        for i, x in enumerate(inputs):
            request.set_input_tensor(i, openvino.Tensor(x.numpy(), shared_memory=True))
        request.infer()
        found["OpenVINO"] = request.infer
    except Exception as err:  # noqa: BLE001 - OpenVINO raises anything; the cell says so
        print(f"{err}", file=sys.stderr)
    return found


def _eager(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> Session:
    def call() -> object:
        with torch.inference_mode():
            return module(*inputs)

    return call


def _errors(
    module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], sessions: dict[str, Session]
) -> str:
    found = {label: _arrays(sessions[label]()) for label in (*OURS, "eager")}
    doubled = tuple(x.double() if x.is_floating_point() else x for x in inputs)
    try:
        exact = _arrays(_eager(module.double(), doubled)())
    except (RuntimeError, TypeError) as err:  # what PyTorch lacks in float64
        return f"no float64: {str(err).splitlines()[0][:60]}"
    eager = _error(found["eager"], exact)
    ours = ", ".join(f"{_error(found[label], exact) / max(eager, 1e-12):.1f}" for label in OURS)
    return f"{ours} of {eager:.1e}"


def _error(found: Arrays, exact: Arrays) -> float:
    worst = 0.0
    for mine, true in zip(found, exact, strict=True):
        if np.issubdtype(true.dtype, np.floating) and true.size:
            scale = float(np.sqrt(np.mean(true**2))) or 1.0
            worst = max(worst, float(np.sqrt(np.mean((mine - true) ** 2))) / scale)
    return worst


def _arrays(found: object) -> Arrays:
    """All tensors of a result, however it is nested, in order."""
    from torch.utils._pytree import tree_leaves

    if isinstance(found, tvm.runtime.Tensor):
        return [found.numpy()]
    if isinstance(found, tvm.ir.Array):
        return [array for one in found for array in _arrays(one)]
    return [x.numpy() for x in tree_leaves(found) if isinstance(x, torch.Tensor)]


def main() -> int:
    """Measure networks and print a table's rows as they come; with ``--out``, write it too."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", default="@cpu", help="words that names contain, or a sample")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds for one network")
    parser.add_argument("--out", type=Path, help="the table's file")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="collage-alone-") as folder:
        if args.one:
            print(row(args.one, Path(folder) / "a" / "b"), flush=True)
            return 0
    here, rows = machine(), list[str]()
    print(*HEADER, sep="\n", flush=True)
    for name in chosen(args.networks):
        rows.append(_in_a_process(name, args.limit))
        print(rows[-1], flush=True)
    if args.out:
        told = (
            "# The zoo, each backend alone\n",
            f"`python -m benchmarks.zoo.alone`: {__doc__.split('`', 4)[-1].split(maxsplit=1)[-1]}",
            f"- Machine: {here['cpu']}, one of its cores, "
            f"load average before {here['load_average_before']}",
            f"- Commit {commit()}, {now()}\n",
            *HEADER,
            *rows,
        )
        args.out.write_text("\n".join(told) + "\n")
    return 0


def _in_a_process(name: str, limit_sec: float) -> str:
    command = [sys.executable, "-m", "benchmarks.zoo.alone", "--one", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_sec)
    except subprocess.TimeoutExpired:
        return f"| {name} | | | | | | | not done in {limit_sec:.0f} s |"
    found = [line for line in done.stdout.splitlines() if line.startswith(f"| {name} ")]
    if found:
        return found[-1]
    reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return f"| {name} | | | | | | | {reason[:120]} |"


if __name__ == "__main__":
    sys.exit(main())
