"""How long a bundle takes from its files to its first result, beside onnxruntime's session.

``python -m benchmarks.first_call`` writes ``benchmarks/results/first_call.md``. Each takes its
turns in processes of its own, in another order each round; what is timed begins after the imports.
Kept to one core, a process's own time counts, which other programs do not lengthen.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import typer
from onnx import ModelProto

import collage
from benchmarks.networks.exported import bert_base, mobilenet_v2
from benchmarks.networks.models import before_softmax, light_model, random_inputs
from benchmarks.timing.machine import commit, machine, now

RESULTS = Path(__file__).parent / "results"
_NETWORKS: dict[str, Callable[[], ModelProto]] = {
    "resnet50": lambda: before_softmax(light_model("resnet50")),
    "mobilenet_v2": mobilenet_v2,
    "bert_base": bert_base,
}
_TIMED = """
import json, os, sys, time
import numpy as np
clock = time.process_time if len(os.sched_getaffinity(0)) == 1 else time.perf_counter
inputs = dict(np.load(sys.argv[2]))
{imports}
began = clock()
{load}
loaded = clock()
{call}
first = clock()
{call}
second = clock()
{call}
print(json.dumps([loaded - began, first - loaded, clock() - second]))
"""
_OURS = _TIMED.format(
    imports="import collage, collage.bundle",
    load="bundle = collage.load(sys.argv[1])",
    call="bundle(**inputs)",
)
_ONNXRUNTIME = _TIMED.format(
    imports="import onnxruntime",
    load="""options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(sys.argv[3])
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])""",
    call="session.run(None, inputs)",
)


@dataclass(frozen=True)
class Taken:
    """Seconds, by round.

    Attributes
    ----------
    load, first, later : tuple of float
        Until the model is loaded, of the first call, and of the third.
    """

    load: tuple[float, ...]
    first: tuple[float, ...]
    later: tuple[float, ...]

    @property
    def together(self) -> tuple[float, ...]:
        """Loading and the first call."""
        return tuple(a + b for a, b in zip(self.load, self.first, strict=True))


def compare(
    commands: dict[str, list[str]], rounds: int, environment: dict[str, str]
) -> dict[str, Taken]:
    """Fresh processes in turns.

    Parameters
    ----------
    commands : dict of str to list of str
        By name; each prints three seconds.
    rounds : int
        Of all of them; one more comes before, which reads the files.
    environment : dict of str to str
        Of the processes.

    Returns
    -------
    dict of str to Taken
        By name.
    """
    found: dict[str, list[list[float]]] = {name: [] for name in commands}
    names = list(commands)
    for number in range(rounds + 1):
        for name in names if number % 2 else names[::-1]:
            done = subprocess.run(
                commands[name], env=environment, check=True, capture_output=True, text=True
            )
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
    return {name: Taken(*map(tuple, zip(*rows[1:], strict=True))) for name, rows in found.items()}


def page(found: dict[str, dict[str, Taken]], rounds: int, backend: str) -> str:
    """The results as Markdown.

    Parameters
    ----------
    found : dict of str to dict
        By network and by who.
    rounds : int
        That were played.
    backend : str
        Of the bundles.
    """
    facts = machine()
    clock = "processor time" if facts["cores"] == "1" else "wall time"
    lines = [
        "# From a bundle's files to its first result",
        "",
        f"Medians of {rounds} fresh processes each, in turns, after the imports, files in memory;",
        f"{clock}, milliseconds. Ratio: loading and the first call, ours over onnxruntime's, by",
        "rounds, with its quartiles.",
        "",
        f"- Machine: {facts['cpu']}, {facts['cores']} cores; {now()}; commit {commit()}",
        f"- Bundles of {backend} alone, float32; onnxruntime from the ONNX file, as many threads",
        "",
        "| network | ours: load | first call | later | onnxruntime: session | first run | later "
        "| ratio |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, taken in found.items():
        ours, theirs = taken["ours"], taken["onnxruntime"]
        ratios = [a / b for a, b in zip(ours.together, theirs.together, strict=True)]
        low, _, high = statistics.quantiles(ratios, n=4)
        cells = " | ".join(
            f"{statistics.median(part) * 1e3:.1f}"
            for one in (ours, theirs)
            for part in (one.load, one.first, one.later)
        )
        ratio = f"{statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})"
        lines.append(f"| {name} | {cells} | {ratio} |")
    return "\n".join(lines) + "\n"


def main(
    models: Annotated[list[str] | None, typer.Argument(help=", ".join(_NETWORKS))] = None,
    rounds: Annotated[int, typer.Option(min=2)] = 9,
    backend: Annotated[str, typer.Option(help="Of the bundles.")] = "onednn",
    out: Annotated[Path, typer.Option()] = RESULTS / "first_call.md",
) -> None:
    """Time bundles of one backend beside onnxruntime."""
    threads = len(os.sched_getaffinity(0))
    found: dict[str, dict[str, Taken]] = {}
    for name in models or _NETWORKS:
        with tempfile.TemporaryDirectory(prefix="first-call-") as place:
            folder = Path(place)
            model = _NETWORKS[name]()
            onnx.save(model, folder / "model.onnx")
            inputs: dict[str, Any] = random_inputs(model, 0)
            np.savez(folder / "inputs.npz", **inputs)
            result = collage.optimize(
                folder / "model.onnx", ["llvm", backend], strategy=f"single:{backend}"
            )
            bundle = result.export(folder / "net.bundle")
            rest = [str(folder / "inputs.npz"), str(threads)]
            commands = {
                "ours": [sys.executable, "-c", _OURS, str(bundle), *rest],
                "onnxruntime": [
                    *(sys.executable, "-c", _ONNXRUNTIME),
                    *(str(folder / "model.onnx"), *rest),
                ],
            }
            found[name] = compare(commands, rounds, dict(os.environ))
        out.write_text(page(found, rounds, backend), encoding="utf-8")
        typer.echo(out.read_text(encoding="utf-8").splitlines()[-1])


if __name__ == "__main__":
    typer.run(main)
