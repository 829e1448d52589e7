"""Large networks by chance: cells of convolutions with branches, sums and concatenations."""

from __future__ import annotations

import random

import numpy as np
from tvm import relax
from tvm.relax import op

_CHANNELS = 8


def generated_network(size: int, seed: int = 0) -> relax.Function:
    """A network of about so many operators, the same one each time.

    Parameters
    ----------
    size : int
        Operators; the last cell ends at or a little beyond that.
    seed : int
        Of the cells that are drawn.

    Returns
    -------
    relax.Function
        In canonical form, channels last, on an image of 8 x 8.
    """
    rng = random.Random(seed)
    builder = relax.BlockBuilder()
    weights = {
        kernel: relax.const(np.full((_CHANNELS, kernel, kernel, _CHANNELS), 0.1, "float32"))
        for kernel in (1, 3)
    }
    bias = relax.const(np.full((1, 1, 1, _CHANNELS), 0.1, "float32"))
    count = 0

    def emit(value: relax.Expr) -> relax.Var:
        nonlocal count
        count += 1
        return builder.emit(value)

    def convolution(x: relax.Var) -> relax.Var:
        kernel = rng.choice((1, 3))
        layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
        y = emit(op.nn.conv2d(x, weights[kernel], padding=kernel // 2, **layouts))
        y = emit(op.add(y, bias))
        return emit(rng.choice((op.nn.relu, op.sigmoid, op.tanh))(y))

    def cell(x: relax.Var, skip: relax.Var) -> relax.Var:
        branches = [x]
        for _ in range(rng.randint(1, 4)):
            y = rng.choice((x, skip))
            for _ in range(rng.randint(1, 3)):
                y = convolution(y)
            branches.append(y)
        if rng.random() < 0.3:
            y = emit(op.concat(branches, axis=3))
            wide = np.full((_CHANNELS, 1, 1, _CHANNELS * len(branches)), 0.1, "float32")
            layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
            return emit(op.nn.conv2d(y, relax.const(wide), **layouts))
        y = branches[0]
        for other in branches[1:]:
            y = emit(op.add(y, other))
        return y

    x = relax.Var("x", relax.TensorType((1, 8, 8, _CHANNELS), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            before, y = x, convolution(x)
            while count < size:
                before, y = y, cell(y, before)
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    return builder.get()["main"]
