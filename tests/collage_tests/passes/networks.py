"""Small graphs for the tests of passes, and what to see of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage.backends.relax.static_shape import static_shape
from collage.cost.reference import evaluate, largest_error
from collage.cost.reference.arithmetic import Arithmetic
from collage.passes.channels_last import to_channels_last
from collage.passes.channels_last_rules import CONVOLUTIONS
from collage.rewrite import flat_bindings, op_name
from collage.testing.graphs import graph

op = relax.op
Emit = Callable[[relax.Expr], relax.Var]
Body = Callable[..., relax.Expr]

LIGHT_ERROR = 1e-5
"""Only the order of sums may differ."""


def build(body: Body, *shapes: Sequence[int], dtype: str = "float32") -> tvm.IRModule:
    """A module whose ``main`` takes tensors of these shapes; ``body`` gets ``emit`` and them."""
    return graph(shapes, body, dtype)


def weights(*shape: int, seed: int = 0, dtype: str = "float32", scale: float = 1.0) -> relax.Expr:
    array = np.random.default_rng(seed).standard_normal(shape, np.float32) * scale
    return relax.const(array.astype(dtype), dtype)


def conv(emit: Emit, x: relax.Expr, width: int, depth: int, kernel: int = 3, **attrs: Any) -> Any:
    """A convolution that keeps the plane, with a bias."""
    padding = [kernel // 2] * 4
    groups = attrs.get("groups", 1)
    dtype = str(x.ty.dtype)
    w = weights(width, depth // groups, kernel, kernel, seed=width, dtype=dtype)
    result = emit(op.nn.conv2d(x, w, padding=padding, **attrs))
    return emit(op.add(result, weights(1, width, 1, 1, seed=depth, dtype=dtype)))


def operators(mod: tvm.IRModule) -> Counter[str]:
    return Counter(op_name(value) for _, value in flat_bindings(mod["main"]))


def check(mod: tvm.IRModule, permutes: int, rtol: float = LIGHT_ERROR) -> tvm.IRModule:
    """Rewrite, compare with the original on random inputs, and count the permutations."""
    last = to_channels_last(mod)
    random = np.random.default_rng()
    inputs = [
        random.standard_normal(static_shape(p), np.float32).astype(str(p.ty.dtype))
        for p in mod["main"].params
    ]
    # With twice float32's digits: a norm of numbers that chance drew alike shows only these.
    exact = Arithmetic(float32_in="float64")
    outputs = zip(evaluate(last, inputs, exact), evaluate(mod, inputs, exact), strict=True)
    for got, wanted in outputs:
        assert largest_error(got, wanted) <= rtol
    assert operators(last)["permute_dims"] == permutes
    for _, value in flat_bindings(last["main"]):
        if op_name(value) in CONVOLUTIONS:
            attrs = value.attrs
            space = "DHW"[3 - len(attrs.strides) :]
            kernel = f"I{space}O" if "transpose" in op_name(value) else f"O{space}I"
            layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout)
            assert layouts == (f"N{space}C", kernel, f"N{space}C")
    return last
