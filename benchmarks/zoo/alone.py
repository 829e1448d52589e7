"""What a search can choose from: ``taskset -c 0 python -m benchmarks.zoo.alone --networks @cpu``.

TVM alone and oneDNN wherever it can, with nothing searched, in turns with onnxruntime, OpenVINO and
eager PyTorch, float32, on one thread by the time of the process itself: a network takes seconds,
and what runs beside it hardly shows. Each network has a process of its own.

With ``--precision bfloat16`` oneDNN and OpenVINO multiply in bfloat16; the others are left out.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tvm

from benchmarks.gpu.networks import build, network
from benchmarks.timing.machine import commit, machine, now
from benchmarks.timing.statistics import Spread, ratio_spread
from benchmarks.winograd import compiled, in_turns
from benchmarks.zoo.__main__ import chosen
from benchmarks.zoo.importing import exported
from benchmarks.zoo.peers import (
    Session,
    arrays,
    eager_session,
    onnxruntime_session,
    openvino_session,
    rms_error,
    write_onnx,
)
from collage.backends.devices import CPU
from collage.pipeline.imported import import_model
from collage.targets import resolve_targets

ROUNDS = 7


@dataclass(frozen=True)
class Contest:
    """Who takes part in a precision: targets of ours by label, peers, and what OpenVINO is told."""

    ours: Mapping[str, tuple[Any, ...]]
    peers: tuple[str, ...]
    hint: str

    @property
    def header(self) -> tuple[str, str]:
        """The table's first two lines."""
        labels = (*self.ours, *self.peers)
        titles = "".join(f"| {label} ms " for label in labels)
        columns = "| ---: " * (len(labels) + 1)
        return (
            f"| network {titles}| best peer / own | errors |",
            f"| --- {columns}| --- |",
        )

    def empty(self, name: str, reason: str) -> str:
        """The row of a network that has no times."""
        return f"| {name} {'| ' * (len(self.ours) + len(self.peers) + 2)}| {reason} |"


CONTESTS = {
    "float32": Contest(
        {"TVM": ("llvm",), "oneDNN": ("llvm", "onednn")},
        ("onnxruntime", "OpenVINO", "eager"),
        "f32",
    ),
    "bfloat16": Contest(
        {"oneDNN": ("llvm", {"kind": "onednn", "precision": "bfloat16"})}, ("OpenVINO",), "bf16"
    ),
}


def row(name: str, batch: int, contest: Contest, folder: Path) -> str:
    """A network's row: times, the ratio of the best, errors of ours and of the last peer.

    Errors are root mean squares of the difference to float64, over the result's own; a network
    that PyTorch cannot run in float64 has none.
    """
    torch.set_num_threads(1)
    module = build(name, 0)
    inputs = network(name).inputs(batch, torch.Generator().manual_seed(0))
    program = exported(module, inputs, "torch")
    imported = import_model(program, CPU)
    given = [tvm.runtime.tensor(x.numpy()) for x in inputs]
    sessions: dict[str, Session] = {}
    for label, targets in contest.ours.items():
        function = compiled(imported.mod, resolve_targets(list(targets)), folder / label)
        sessions[label] = _call(function, given)
    sessions |= _peers(program, inputs, contest, folder)
    if "eager" in contest.peers:
        sessions["eager"] = eager_session(module, inputs)
    times = dict(
        zip(
            sessions,
            np.array([in_turns(list(sessions.values())) for _ in range(ROUNDS)]).T,
            strict=True,
        )
    )
    return _told(name, contest, times, _errors(module, inputs, contest, sessions))


def _told(name: str, contest: Contest, times: dict[str, np.ndarray], errors: str) -> str:
    median = {label: float(np.median(spent)) for label, spent in times.items()}
    own = min(contest.ours, key=median.__getitem__)
    peers = median.keys() - contest.ours.keys()
    if not peers:
        return contest.empty(name, "refused by all peers")
    peer = min(peers, key=median.__getitem__)
    ratio = ratio_spread(list(times[peer]), list(times[own]))
    labels = (*contest.ours, *contest.peers)
    cells = " | ".join(f"{1e3 * median[x]:.3g}" if x in median else "refused" for x in labels)
    return f"| {name} | {cells} | {_spread(ratio)} | {errors} |"


def _spread(ratio: Spread) -> str:
    return f"{ratio.median:.2f} ({ratio.lower_quartile:.2f} to {ratio.upper_quartile:.2f})"


def _call(function: tvm.runtime.PackedFunc, given: list[Any]) -> Session:
    return lambda: function(*given)


def _peers(
    program: Any, inputs: tuple[torch.Tensor, ...], contest: Contest, folder: Path
) -> dict[str, Session]:
    """The sessions of those who read files, but of one that refuses this one, which is said."""
    file = folder / "model.onnx"
    write_onnx(program, file)
    readers: dict[str, Callable[[], Session]] = {
        "onnxruntime": lambda: onnxruntime_session(file, inputs),
        "OpenVINO": lambda: openvino_session(file, inputs, contest.hint),
    }
    found: dict[str, Session] = {}
    for label in contest.peers:
        try:
            if label in readers:
                found[label] = readers[label]()
        except Exception as err:  # noqa: BLE001 - they raise anything; the cell says so
            print(f"{err}", file=sys.stderr)
    return found


def _errors(
    module: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    contest: Contest,
    sessions: dict[str, Session],
) -> str:
    last = contest.peers[-1]
    found = {label: arrays(sessions[label]()) for label in (*contest.ours, last)}
    doubled = tuple(x.double() if x.is_floating_point() else x for x in inputs)
    try:
        exact = arrays(eager_session(module.double(), doubled)())
    except (RuntimeError, TypeError) as err:  # what PyTorch lacks in float64
        return f"no float64: {str(err).splitlines()[0][:60]}"
    peer = rms_error(found[last], exact)
    ours = (rms_error(found[label], exact) / max(peer, 1e-12) for label in contest.ours)
    return f"{', '.join(f'{one:.2g}' for one in ours)} of {peer:.1e}"


def main() -> int:
    """Measure networks and print a table's rows as they come; with ``--out``, write it too."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", default="@cpu", help="words that names contain, or a sample")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds for one network")
    parser.add_argument("--out", type=Path, help="the table's file")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--precision", choices=CONTESTS, default="float32")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    contest = CONTESTS[args.precision]
    with tempfile.TemporaryDirectory(prefix="collage-alone-") as folder:
        if args.one:
            print(row(args.one, args.batch, contest, Path(folder) / "a" / "b"), flush=True)
            return 0
    here, rows = machine(), list[str]()
    print(*contest.header, sep="\n", flush=True)
    for name in chosen(args.networks):
        rows.append(_in_a_process(name, args))
        print(rows[-1], flush=True)
    if args.out:
        told = (
            f"# The zoo, each backend alone, {args.precision}\n",
            f"`python -m benchmarks.zoo.alone`: {__doc__.split('`', 4)[-1].split(maxsplit=1)[-1]}",
            f"- Machine: {here['cpu']}, one of its cores, "
            f"load average before {here['load_average_before']}",
            f"- Commit {commit()}, {now()}\n",
            *contest.header,
            *rows,
        )
        args.out.write_text("\n".join(told) + "\n")
    return 0


def _in_a_process(name: str, args: argparse.Namespace) -> str:
    options = (f"--one={name}", f"--precision={args.precision}", f"--batch={args.batch}")
    command = [sys.executable, "-m", "benchmarks.zoo.alone", *options]
    contest = CONTESTS[args.precision]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=args.limit)
    except subprocess.TimeoutExpired:
        return contest.empty(name, f"not done in {args.limit:.0f} s")
    found = [line for line in done.stdout.splitlines() if line.startswith(f"| {name} ")]
    if found:
        return found[-1]
    reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return contest.empty(name, reason[:120])


if __name__ == "__main__":
    sys.exit(main())
