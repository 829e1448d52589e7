"""Winograd's tiles beside oneDNN's kernels: ``taskset -c 0 python -m benchmarks.winograd``.

Three convolutions in a row, each with a bias and a ReLU, as one region: with tiles and without, in
turns, on one thread by the time of the process itself, which a neighbour hardly lengthens. Errors
are those of one convolution beside the same in float64. Writes ``benchmarks/results/winograd.md``.
``benchmarks/winograd_networks.py`` does the same to whole networks.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import tvm
import typer
from numpy.typing import NDArray
from tvm import relax
from tvm.relax import op

from benchmarks.timing.machine import commit, machine, now
from collage.backends.compile import compile_module
from collage.backends.contract import BuildContext, TargetSet
from collage.backends.link import stage_libraries
from collage.passes import lower
from collage.search import DataflowGraph, greedy
from collage.targets import resolve_targets
from collage.testing.graphs import Emit, graph

RESULTS = Path(__file__).parent / "results" / "winograd.md"
WITHOUT = {"kind": "onednn", "winograd": False}
ROUNDS, _TURN_SEC = 15, 0.05


@dataclass(frozen=True)
class Shape:
    """A convolution with as many channels before it as behind it."""

    channels: int
    size: int
    batch: int = 1
    groups: int = 1
    dilation: int = 1

    def __str__(self) -> str:
        text = f"{self.batch}x{self.channels}x{self.size}x{self.size}"
        text += f", {self.groups} groups" if self.groups > 1 else ""
        return text + (f", dilation {self.dilation}" if self.dilation > 1 else "")


SHAPES = (
    *(Shape(64, 56), Shape(128, 28), Shape(256, 14), Shape(512, 7)),
    *(Shape(64, 56, 8), Shape(512, 7, 8)),
    *(Shape(16, 80), Shape(32, 160), Shape(64, 112), Shape(80, 40), Shape(192, 10)),
    *(Shape(128, 56), Shape(256, 56), Shape(320, 32), Shape(512, 28)),
    *(Shape(128, 28, groups=4), Shape(256, 28, dilation=2)),
)
"""ResNets, whole and in batches; detectors, U-Nets and VAEs; groups, and dilation as in DeepLab."""


@dataclass(frozen=True)
class Row:
    """One shape: microseconds of a convolution, ratios and errors."""

    shape: Shape
    without_us: float
    ratio: float
    quartiles: tuple[float, float]
    errors: tuple[float, float]
    """Root mean square, of tiles and of oneDNN's kernel."""

    def cells(self) -> str:
        first, last = self.quartiles
        tiles, sums = self.errors
        return (
            f"| {self.shape} | {self.without_us:.0f} | {self.ratio * self.without_us:.0f} "
            f"| {self.ratio:.2f} | {first:.2f} to {last:.2f} | {tiles:.1e} | {sums:.1e} |"
        )


def network(shape: Shape, layers: int, rng: np.random.Generator) -> tvm.IRModule:
    """So many convolutions in a row."""

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        for _ in range(layers):
            x = emit(op.nn.conv2d(x, relax.const(_weights(shape, rng)), **_attributes(shape)))
            bias = rng.standard_normal((1, shape.channels, 1, 1)).astype(np.float32)
            x = emit(op.nn.relu(emit(op.add(x, relax.const(bias)))))
        return x

    return graph([(shape.batch, shape.channels, shape.size, shape.size)], body)


def measure(shape: Shape, folder: Path) -> Row:
    """Time a shape with tiles and without, and compare both with float64."""
    rng = np.random.default_rng(0)
    targets = [resolve_targets(["llvm", spec]) for spec in ("onednn", WITHOUT)]
    mod = network(shape, 3, rng)
    picture = [int(n) for n in mod["main"].params[0].ty.shape]
    x = rng.standard_normal(picture).astype(np.float32)
    given = tvm.runtime.tensor(x)
    functions = [
        partial(compiled(mod, target, folder / f"{i}"), given) for i, target in enumerate(targets)
    ]
    times = np.array([in_turns(functions) for _ in range(ROUNDS)])
    ratios = times[:, 0] / times[:, 1]
    first, middle, last = np.percentile(ratios, [25, 50, 75])
    errors = _errors(shape, [np.maximum(x, 0)], targets, folder)
    without = float(np.median(times[:, 1])) / 3
    return Row(shape, without * 1e6, float(middle), (float(first), float(last)), errors)


def _weights(shape: Shape, rng: np.random.Generator) -> NDArray[np.float32]:
    depth = shape.channels // shape.groups
    values = rng.standard_normal((shape.channels, depth, 3, 3)) * (9 * depth / 2) ** -0.5
    return np.asarray(values, np.float32)


def _attributes(shape: Shape) -> dict[str, int]:
    return {"padding": shape.dilation, "dilation": shape.dilation, "groups": shape.groups}


def compiled(mod: tvm.IRModule, targets: TargetSet, folder: Path) -> tvm.runtime.PackedFunc:
    """A module's ``main``, with oneDNN wherever it can, on one thread."""
    dataflow = DataflowGraph.from_function(mod["main"])
    context = BuildContext(folder.parent / "cache", folder / "work", 1)
    lowered = lower(mod, dataflow, greedy(dataflow, targets))
    library = compile_module(lowered, list(targets), folder / "model.so", context)
    stage_libraries(library, copy=False)
    module = tvm.runtime.load_module(str(library.path))
    return relax.VirtualMachine(module, tvm.cpu())["main"]


def in_turns(functions: Sequence[Callable[[], object]]) -> list[float]:
    """Seconds of a call of each, this process's."""
    times = []
    for function in functions:
        function()
        calls, begin = 0, time.process_time()
        while (spent := time.process_time() - begin) < _TURN_SEC:
            function()
            calls += 1
        times.append(spent / calls)
    return times


def _errors(
    shape: Shape,
    inputs: Sequence[NDArray[np.float32]],
    targets: Sequence[TargetSet],
    folder: Path,
) -> tuple[float, float]:
    weights = _weights(shape, np.random.default_rng(1))

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        return op.nn.conv2d(x, relax.const(weights), **_attributes(shape))

    (x,) = inputs
    mod = graph([x.shape], body)
    d = shape.dilation
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (d, d), (d, d)))
    taps = weights.astype(np.float64)
    expected = np.zeros(x.shape)
    for group in np.split(np.arange(shape.channels), shape.groups):
        for i, j in np.ndindex(3, 3):
            seen = padded[:, group, i * d : i * d + shape.size, j * d : j * d + shape.size]
            expected[:, group] += np.einsum(
                "nchw,fc->nfhw", seen, taps[group, :, i, j], optimize=True
            )
    found = []
    for i, target in enumerate(targets):
        actual = compiled(mod, target, folder / f"error{i}")(tvm.runtime.tensor(x)).numpy()
        found.append(float(np.sqrt(np.mean((actual - expected) ** 2) / np.mean(expected**2))))
    return found[0], found[1]


def main(output: Annotated[Path, typer.Option(help="The table.")] = RESULTS) -> None:
    """Measure every shape and write the table."""
    rows = []
    for shape in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(shape, Path(folder)))
        typer.echo(rows[-1].cells())
    mean = float(np.exp(np.mean([np.log(row.ratio) for row in rows])))
    here = machine()
    lines = [
        "# Convolutions in Winograd's tiles",
        "",
        "Three convolutions in a row, each with a bias and a ReLU, as one region of the backend",
        "`onednn`: with tiles and without, in turns, on one thread by the time of the process.",
        "Errors: root mean square beside float64, of one convolution of what a ReLU left.",
        "",
        f"- Machine: {here['cpu']}, one of its cores, load average {here['load_average_before']}",
        f"- Commit {commit()}, {now()}",
        "",
        "| picture | oneDNN's, us | tiles, us | ratio | quartiles | error of tiles | of oneDNN's |",
        "| --- | ---: | ---: | ---: | :---: | ---: | ---: |",
        *(row.cells() for row in rows),
        "",
        f"Geometric mean of the {len(rows)} ratios: {mean:.2f}.",
    ]
    output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    typer.run(main)
