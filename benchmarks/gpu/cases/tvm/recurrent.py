"""Recurrent layers: all steps in one kernel, and a kernel a step, of every cell."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tvm
from tvm import relax

from benchmarks.gpu.cases._case import CudaCase
from collage.backends.relax.recurrent import GATES, Recurrence, recurrent
from collage.testing.graphs import Emit, graph

RTOL = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-5, "float64": 1e-12}
"""States are kept in float32: only results are rounded."""

SAMPLE = frozenset(
    {
        *(f"{cell}-bidirectional-3x40-lengths-float32" for cell in GATES),
        *("lstm-reverse-2x96-bfloat16", "gru-forward-2x500-float16"),
    }
)
"""Cases for every day."""


def cases() -> list[CudaCase]:
    """Every cell both ways, small and large; other types for one."""
    found = []
    for one in _layers():
        size = f"{one.direction}-{one.batch}x{one.hidden}" + "-lengths" * one.has_lengths
        name = f"{one.cell}-{size}-{one.dtype}"
        found.append(CudaCase(name, "tvm", "", _module(one), rtol=RTOL[one.dtype]))
    return found


def _layers() -> Iterator[Recurrence]:
    for cell in GATES:
        yield Recurrence(cell, "forward", 12, 1, 64, "float16", False)
        yield Recurrence(cell, "bidirectional", 5, 3, 40, "float32", True)
        yield Recurrence(cell, "forward", 6, 2, 500, "float16", False)
        yield Recurrence(cell, "bidirectional", 4, 9, 321, "float32", True)
    yield Recurrence("lstm", "reverse", 7, 2, 96, "bfloat16", False)
    yield Recurrence("gru_reset_after", "reverse", 3, 300, 33, "float16", False)
    # Two tiles of columns, weights in registers and not; pairs of rows; the widest type.
    yield Recurrence("rnn_relu", "forward", 5, 2, 180, "float16", False)
    yield Recurrence("gru", "bidirectional", 5, 2, 150, "float16", True)
    yield Recurrence("lstm", "forward", 4, 300, 48, "float32", True)
    yield Recurrence("lstm", "forward", 3, 2, 40, "float64", False)
    yield Recurrence("lstm", "forward", 300, 1, 512, "float16", False)


def _module(one: Recurrence) -> tvm.IRModule:
    random = np.random.default_rng(0)
    directions, hidden = len(one.backwards), one.hidden
    width, state = one.gates * hidden, (directions, one.batch, hidden)
    # Small enough that states, and errors in them, do not grow from step to step.
    spread = random.uniform(-1, 1, (directions, hidden, width)) * 0.5 / np.sqrt(hidden)
    weights = relax.const(spread.astype(one.dtype), one.dtype)
    last = random.uniform(-0.5, 0.5, (directions, hidden)).astype(one.dtype)
    lengths = random.integers(0, one.steps + 1, one.batch).astype("int32")

    def body(emit: Emit, taken: relax.Expr, *states: relax.Expr) -> relax.Expr:
        operands = [taken, weights, *states]
        operands += [relax.const(last, one.dtype)] * one.has_bias
        operands += [relax.const(lengths, "int32")] * one.has_lengths
        results = emit(recurrent(one.cell, one.direction, operands))
        return relax.Tuple([emit(relax.TupleGetItem(results, i)) for i in range(1 + one.states)])

    return graph(
        [(one.steps, one.batch, directions * width), *[state] * one.states], body, one.dtype
    )
