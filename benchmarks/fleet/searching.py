"""One search in a process of its own, which says every step on its standard output.

python -m benchmarks.fleet.searching --workers local --log log.jsonl --folder out
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto

import collage
from benchmarks.networks.tiny import GraphWriter
from collage.cost.progress import ProgressEvent

_ROWS, _COLUMNS = 16, 48
_WIDTHS = (64, 32, 96, 40, 80, 24, 72, 56)
TARGETS = ("llvm", "openblas")


def network() -> tuple[ModelProto, list[tuple[NDArray[np.float32], NDArray[np.float32]]]]:
    """Products of different widths with biases and activations, and their weights."""
    writer = GraphWriter(seed=0)
    layers = []
    value, columns = "x", _COLUMNS
    for width in _WIDTHS:
        scale = np.float32(columns**-0.5)
        weight = writer.random.standard_normal((columns, width), np.float32) * scale
        bias = writer.random.standard_normal(width, np.float32)
        layers.append((weight, bias))
        value = writer.apply("MatMul", value, writer.constant(weight))
        value = writer.apply("Tanh", writer.apply("Add", value, writer.constant(bias)))
        columns = width
    inputs = {"x": (TensorProto.FLOAT, (_ROWS, _COLUMNS))}
    return writer.model("layers", inputs, value, (_ROWS, columns)), layers


def expected(
    layers: list[tuple[NDArray[np.float32], NDArray[np.float32]]], x: NDArray[np.float32]
) -> NDArray[np.float64]:
    """What the network gives, in double precision."""
    value = x.astype(np.float64)
    for weight, bias in layers:
        value = np.tanh(value @ weight + bias)
    return value


def main() -> None:
    """Search, export, load and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default="local")
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="of the bundle")
    args = parser.parse_args()
    model, layers = network()

    def show(event: ProgressEvent) -> None:
        say(stage=event.stage, message=event.message)

    def say(**facts: object) -> None:
        sys.stdout.write(f"{json.dumps(facts)}\n")
        sys.stdout.flush()

    result = collage.optimize(
        model, list(TARGETS), log=args.log, workers=args.workers, num_threads=1, progress=show
    )
    bundle = result.export(args.folder)
    x = np.random.default_rng(1).standard_normal((_ROWS, _COLUMNS), np.float32)
    output = np.asarray(collage.load(bundle)(x=x))
    apart = float(np.max(np.abs(output - expected(layers, x))))
    search = result.report.search
    say(stage="ended", apart=apart, measured=search.measured, from_log=search.from_log)


if __name__ == "__main__":
    main()
