"""Winograd's tiles beside oneDNN's kernels: ``taskset -c 0 python -m benchmarks.winograd``.

Three convolutions in a row, each with a bias and a ReLU, as one region: with tiles and without, in
turns, on one thread by the time of the process itself, which a neighbour hardly lengthens. Errors
are those of one convolution beside the same in float64. Writes ``benchmarks/results/winograd.md``;
with ``--family`` those of others, which have tables of their own there.
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

RESULTS = Path(__file__).parent / "results"
WITHOUT = {"kind": "onednn", "winograd": False}
ROUNDS, _TURN_SEC = 15, 0.05


@dataclass(frozen=True)
class Shape:
    """A convolution with as many channels before it as behind it, of a picture or a volume."""

    channels: int
    size: int
    batch: int = 1
    groups: int = 1
    dilation: int = 1
    planes: int = 0
    """Of a volume."""
    taps: tuple[int, ...] = ()
    """Three along each axis where nothing is said."""

    @property
    def picture(self) -> tuple[int, ...]:
        axes = len(self.taps) or (3 if self.planes else 2)
        extents = [self.planes, self.size, self.size] if self.planes else [self.size] * axes
        return (self.batch, self.channels, *extents)

    @property
    def weights(self) -> tuple[int, ...]:
        taps = self.taps or (3,) * (len(self.picture) - 2)
        return (self.channels, self.channels // self.groups, *taps)

    def __call__(self, x: relax.Expr, weights: NDArray[np.float32]) -> relax.Expr:
        """The convolution, with as many results as pixels."""
        convolved = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}[len(self.picture) - 2]
        return convolved(
            x,
            relax.const(weights),
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
        )

    @property
    def padding(self) -> list[int]:
        return [taps // 2 * self.dilation for taps in self.weights[2:]]

    def __str__(self) -> str:
        text = "x".join(map(str, self.picture))
        text += f", {'x'.join(map(str, self.taps))} taps" if self.taps else ""
        text += f", {self.groups} groups" if self.groups > 1 else ""
        return text + (f", dilation {self.dilation}" if self.dilation > 1 else "")


PICTURES = (
    *(Shape(64, 56), Shape(128, 28), Shape(256, 14), Shape(512, 7)),
    *(Shape(64, 56, 8), Shape(512, 7, 8)),
    *(Shape(16, 80), Shape(32, 160), Shape(64, 112), Shape(80, 40), Shape(192, 10)),
    *(Shape(128, 56), Shape(256, 56), Shape(320, 32), Shape(512, 28)),
    *(Shape(128, 28, groups=4), Shape(256, 28, dilation=2)),
)
"""ResNets, whole and in batches; detectors, U-Nets and VAEs; groups, and dilation as in DeepLab."""

VOLUMES = (
    *(Shape(64, 56, planes=16), Shape(128, 28, planes=8), Shape(256, 14, planes=4)),
    *(Shape(512, 7, planes=2), Shape(512, 14, planes=2), Shape(512, 7, 8, planes=2)),
    *(Shape(64, 56, planes=16, taps=(1, 3, 3)), Shape(256, 14, planes=4, taps=(1, 3, 3))),
    *(Shape(16, 64, planes=32), Shape(32, 32, planes=32), Shape(64, 32, planes=32)),
    *(Shape(128, 16, planes=16), Shape(256, 8, planes=8), Shape(512, 4, planes=4)),
    *(Shape(64, 28, groups=4, planes=8), Shape(64, 28, dilation=2, planes=8)),
)
"""3-D ResNets' and C3D's, what R(2+1)D has between its planes, U-Nets'; groups and dilation."""

LINES = (
    *(Shape(n, size, taps=(3,)) for n, size in ((64, 1000), (128, 1024), (256, 512), (512, 256))),
    *(Shape(128, 1024, dilation=4, taps=(3,)), Shape(64, 28, taps=(1, 3))),
    *(Shape(384, 8, taps=(1, 3)), Shape(384, 8, taps=(3, 1))),
    *(Shape(64, 56, planes=16, taps=(3, 1, 1)), Shape(256, 14, planes=4, taps=(3, 1, 1))),
    *(Shape(256, 500, taps=(5,)), Shape(512, 200, taps=(5,)), Shape(128, 28, taps=(5, 1))),
)
"""Sequences' convolutions, Inception's, what R(2+1)D has between its planes; five taps."""

FIVES = (
    *(Shape(16, 28, taps=(5, 5)), Shape(32, 28, taps=(5, 5)), Shape(48, 35, taps=(5, 5))),
    *(Shape(96, 27, taps=(5, 5)), Shape(256, 27, groups=2, taps=(5, 5))),
    *(Shape(128, 28, taps=(5, 5)), Shape(256, 14, taps=(5, 5)), Shape(256, 7, taps=(5, 5))),
)
"""GoogLeNet's, Inception's and AlexNet's."""

FAMILIES = {
    "pictures": (PICTURES, RESULTS / "winograd.md", "Convolutions in Winograd's tiles"),
    "volumes": (VOLUMES, RESULTS / "winograd_volumes.md", "Volumes in Winograd's tiles"),
    "lines": (LINES, RESULTS / "winograd_lines.md", "Taps along one axis in Winograd's tiles"),
    "fives": (FIVES, RESULTS / "winograd_fives.md", "Five by five taps in Winograd's tiles"),
}


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
            x = emit(shape(x, _weights(shape, rng)))
            one = (1, shape.channels, *(1 for _ in shape.picture[2:]))
            bias = rng.standard_normal(one).astype(np.float32)
            x = emit(op.nn.relu(emit(op.add(x, relax.const(bias)))))
        return x

    return graph([shape.picture], body)


def measure(shape: Shape, folder: Path) -> Row:
    """Time a shape with tiles and without, and compare both with float64."""
    rng = np.random.default_rng(0)
    targets = [resolve_targets(["llvm", spec]) for spec in ("onednn", WITHOUT)]
    mod = network(shape, 3, rng)
    x = rng.standard_normal(shape.picture).astype(np.float32)
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
    summands = float(np.prod(shape.weights[1:]))
    return np.asarray(rng.standard_normal(shape.weights) * (summands / 2) ** -0.5, np.float32)


def compiled(mod: tvm.IRModule, targets: TargetSet, folder: Path) -> tvm.runtime.PackedFunc:
    """A module's ``main``, with oneDNN wherever it can, on one thread.

    ``folder`` is one of a row's; what rows have in common is kept beside those.
    """
    dataflow = DataflowGraph.from_function(mod["main"])
    context = BuildContext(folder.parents[1] / "cache", folder / "work", 1)
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
        return shape(x, weights)

    (x,) = inputs
    mod = graph([x.shape], body)
    padding = [(0, 0), (0, 0), *((n, n) for n in shape.padding)]
    padded = np.pad(x.astype(np.float64), padding)
    taps = weights.astype(np.float64)
    expected = np.zeros(x.shape)
    for group in np.split(np.arange(shape.channels), shape.groups):
        for place in np.ndindex(*taps.shape[2:]):
            starts = [shape.dilation * i for i in place]
            pixels = tuple(slice(i, i + n) for i, n in zip(starts, x.shape[2:], strict=True))
            seen = padded[:, group][:, :, *pixels]
            tap = taps[group][:, :, *place]
            expected[:, group] += np.einsum("nc...,fc->nf...", seen, tap, optimize=True)
    found = []
    for i, target in enumerate(targets):
        actual = compiled(mod, target, folder / f"error{i}")(tvm.runtime.tensor(x)).numpy()
        found.append(float(np.sqrt(np.mean((actual - expected) ** 2) / np.mean(expected**2))))
    return found[0], found[1]


def main(
    family: Annotated[str, typer.Option(help="Whose table: " + ", ".join(FAMILIES))] = "pictures",
) -> None:
    """Measure every shape and write the table."""
    shapes, output, title = FAMILIES[family]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for i, shape in enumerate(shapes):
            rows.append(measure(shape, Path(folder) / f"row{i}"))
            typer.echo(rows[-1].cells())
    mean = float(np.exp(np.mean([np.log(row.ratio) for row in rows])))
    here = machine()
    lines = [
        f"# {title}",
        "",
        "Three convolutions in a row, each with a bias and a ReLU, as one region of the backend",
        "`onednn`: with tiles and without, in turns, on one thread by the time of the process.",
        "Errors: root mean square beside float64, of one convolution of what a ReLU left.",
        "",
        f"- Machine: {here['cpu']}, one of its cores, load average {here['load_average_before']}",
        f"- Commit {commit()}, {now()}",
        "",
        "| read | oneDNN's, us | tiles, us | ratio | quartiles | error of tiles | of oneDNN's |",
        "| --- | ---: | ---: | ---: | :---: | ---: | ---: |",
        *(row.cells() for row in rows),
        "",
        f"Geometric mean of the {len(rows)} ratios: {mean:.2f}.",
    ]
    output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    typer.run(main)
