"""Whole networks with tiles and without: ``taskset -c 0 python -m benchmarks.winograd_networks``.

oneDNN wherever it can, with nothing searched, in turns with onnxruntime, on one thread by the time
of the process itself. Writes ``benchmarks/results/winograd_networks.md``.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import onnxruntime
import tvm
import typer

from benchmarks.networks.models import light_model, light_model_names
from benchmarks.timing.machine import commit, machine, now
from benchmarks.timing.statistics import Spread, max_relative_difference, ratio_spread
from benchmarks.winograd import ROUNDS, WITHOUT, compiled, in_turns
from collage.backends.devices import CPU
from collage.pipeline import import_model
from collage.targets import resolve_targets

RESULTS = Path(__file__).parent / "results" / "winograd_networks.md"


def measure(name: str, folder: Path) -> str:
    """One row of the table."""
    model = light_model(name)
    file = folder / "model.onnx"
    file.write_bytes(model.SerializeToString())
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    feed = {i.name: rng.standard_normal(i.shape).astype(np.float32) for i in session.get_inputs()}
    imported = import_model(file, CPU)
    given = [tvm.runtime.tensor(array) for array in feed.values()]
    ours = [
        partial(compiled(imported.mod, resolve_targets(["llvm", spec]), folder / str(i)), *given)
        for i, spec in enumerate(("onednn", WITHOUT))
    ]
    expected = session.run(None, feed)
    errors = [max_relative_difference(_arrays(function()), expected) for function in ours]
    rounds = [in_turns([*ours, lambda: session.run(None, feed)]) for _ in range(ROUNDS)]
    tiles, without, peer = zip(*rounds, strict=True)
    times = " | ".join(f"{1e3 * float(np.median(t)):.1f}" for t in (tiles, without, peer))
    ratios = " | ".join(_cell(ratio_spread(tiles, other)) for other in (without, peer))
    return f"| {name} | {times} | {ratios} | {errors[0]:.1e} | {errors[1]:.1e} |"


def _cell(ratio: Spread) -> str:
    return f"{ratio.median:.2f} ({ratio.lower_quartile:.2f} to {ratio.upper_quartile:.2f})"


def _arrays(found: object) -> list[np.ndarray]:
    tensors = [found] if isinstance(found, tvm.runtime.Tensor) else list(found)  # type: ignore[call-overload]
    return [tensor.numpy() for tensor in tensors]


def main(output: Annotated[Path, typer.Option(help="The table.")] = RESULTS) -> None:
    """Measure the light models of the ``onnx`` package and write the table."""
    here, rows = machine(), []
    for name in light_model_names():
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(name, Path(folder)))
        typer.echo(rows[-1])
    lines = [
        "# Networks with Winograd's tiles and without",
        "",
        "The light models of the `onnx` package with random weights, batch 1, float32; oneDNN",
        "wherever it can, nothing searched; in turns with onnxruntime, on one thread by the time",
        "of the process.",
        "Differences: largest to onnxruntime's outputs, relative to the largest value.",
        "",
        f"- Machine: {here['cpu']}, one of its cores, load average {here['load_average_before']}",
        f"- Commit {commit()}, {now()}",
        "",
        "| network | tiles, ms | without, ms | onnxruntime, ms | over without | over onnxruntime "
        "| difference | without |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        *rows,
    ]
    output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    typer.run(main)
