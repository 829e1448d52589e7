"""Whole networks with tiles and without: ``taskset -c 0 python -m benchmarks.winograd_networks``.

oneDNN wherever it can, with nothing searched, in turns with onnxruntime, on one thread by the time
of the process itself. Writes ``benchmarks/results/winograd_networks.md``; with ``--family volumes``
networks over videos and volumes, and eager PyTorch too: ``winograd_volume_networks.md`` there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import onnx
import onnxruntime
import tvm
import typer
from numpy.typing import NDArray

from benchmarks.networks.models import light_model, light_model_names
from benchmarks.timing.machine import commit, machine, now
from benchmarks.timing.statistics import Spread, max_relative_difference, ratio_spread
from benchmarks.winograd import RESULTS, ROUNDS, WITHOUT, compiled, in_turns
from collage.backends.devices import CPU
from collage.pipeline import import_model
from collage.targets import resolve_targets

Peer = Callable[[], object]


def measure(
    name: str, file: Path, given: list[NDArray[np.float32]] | None, peers: dict[str, Peer]
) -> str:
    """One row of the table, of an ONNX file; with random inputs where none are given."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    inputs = session.get_inputs()
    if given is None:
        rng = np.random.default_rng(0)
        given = [rng.standard_normal(i.shape).astype(np.float32) for i in inputs]
    feed = {i.name: array for i, array in zip(inputs, given, strict=True)}
    imported = import_model(file, CPU)
    tensors = [tvm.runtime.tensor(array) for array in given]
    ours = [
        partial(
            compiled(imported.mod, resolve_targets(["llvm", spec]), file.parent / str(i)), *tensors
        )
        for i, spec in enumerate(("onednn", WITHOUT))
    ]
    expected = session.run(None, feed)
    errors = [max_relative_difference(_arrays(function()), expected) for function in ours]
    functions: list[Peer] = [*ours, lambda: session.run(None, feed), *peers.values()]
    tiles, *others = zip(*(in_turns(functions) for _ in range(ROUNDS)), strict=True)
    times = " | ".join(f"{1e3 * float(np.median(t)):.1f}" for t in (tiles, *others))
    ratios = " | ".join(_cell(ratio_spread(tiles, other)) for other in others)
    return f"| {name} | {times} | {ratios} | {errors[0]:.1e} | {errors[1]:.1e} |"


def _cell(ratio: Spread) -> str:
    return f"{ratio.median:.2f} ({ratio.lower_quartile:.2f} to {ratio.upper_quartile:.2f})"


def _arrays(found: object) -> list[np.ndarray]:
    tensors = [found] if isinstance(found, tvm.runtime.Tensor) else list(found)  # type: ignore[call-overload]
    return [tensor.numpy() for tensor in tensors]


def _picture_row(name: str, folder: Path) -> str:
    file = folder / "model.onnx"
    file.write_bytes(light_model(name).SerializeToString())
    return measure(name, file, None, {})


def _volume_row(name: str, folder: Path) -> str:
    import torch

    from benchmarks.networks.volumes import volume_network

    torch.set_num_threads(1)
    network, x = volume_network(name)
    file = folder / "model.onnx"
    program = torch.onnx.export(network, (x,), dynamo=True, verbose=False)
    onnx.save(program.model_proto, file)

    def eager() -> object:
        with torch.inference_mode():
            return network(x)

    return measure(name, file, [x.numpy()], {"eager PyTorch": eager})


def _volume_names() -> list[str]:
    from benchmarks.networks.volumes import VOLUMES

    return list(VOLUMES)


@dataclass(frozen=True)
class Family:
    """Networks of one table."""

    names: Callable[[], Sequence[str]]
    row: Callable[[str, Path], str]
    output: Path
    told: tuple[str, ...]
    peers: tuple[str, ...] = ()
    """Besides onnxruntime."""


FAMILIES = {
    "pictures": Family(
        light_model_names,
        _picture_row,
        RESULTS / "winograd_networks.md",
        ("The light models of the `onnx` package with random weights, batch 1, float32; oneDNN",),
    ),
    "volumes": Family(
        _volume_names,
        _volume_row,
        RESULTS / "winograd_volume_networks.md",
        (
            "Videos' ResNets of 18 layers (16 frames of 112 by 112 pixels) and a 3-D U-Net (32 by",
            "64 by 64), random weights, batch 1, float32, in turns with eager PyTorch too; oneDNN",
        ),
        ("eager PyTorch",),
    ),
}


def main(
    family: Annotated[str, typer.Option(help="Whose table: " + ", ".join(FAMILIES))] = "pictures",
) -> None:
    """Measure a family's networks and write the table."""
    networks = FAMILIES[family]
    here, rows = machine(), []
    with tempfile.TemporaryDirectory() as folder:
        for name in networks.names():
            (Path(folder) / name).mkdir()
            rows.append(networks.row(name, Path(folder) / name))
            typer.echo(rows[-1])
    peers = ["without", "onnxruntime", *networks.peers]
    columns = ["network", "tiles, ms", *(f"{peer}, ms" for peer in peers)]
    columns += [*(f"over {peer}" for peer in peers), "difference", "without"]
    lines = [
        "# Networks with Winograd's tiles and without",
        "",
        *networks.told,
        "wherever it can, nothing searched; in turns with onnxruntime, on one thread by the time",
        "of the process.",
        "Differences: largest to onnxruntime's outputs, relative to the largest value.",
        "",
        f"- Machine: {here['cpu']}, one of its cores, load average {here['load_average_before']}",
        f"- Commit {commit()}, {now()}",
        "",
        f"| {' | '.join(columns)} |",
        f"| --- |{' ---: |' * (len(columns) - 1)}",
        *rows,
    ]
    networks.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    typer.run(main)
