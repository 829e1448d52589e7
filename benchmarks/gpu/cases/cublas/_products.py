"""Products and 1×1 convolutions with what may follow them, as cuBLAS's cases have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from collage.testing.graphs import Emit, constant, graph


class Values(Protocol):
    """A maker of seeded constants."""

    def __call__(self, *shape: int, scale: float = 1.0) -> relax.Expr:
        """Normally distributed values times ``scale``."""
        ...


@dataclass(frozen=True)
class Chain:
    """What follows a product, in the order that the backend runs it."""

    bias: tuple[int, ...] | None = None
    residual: bool = False
    activation: str = ""

    @property
    def suffix(self) -> str:
        """As in the patterns' names."""
        parts = [("bias", self.bias is not None), ("residual", self.residual)]
        given = [name for name, on in parts if on] + [self.activation] * bool(self.activation)
        return "".join(f"_{name}" for name in given)

    def emit(
        self, emit: Emit, y: relax.Expr, residual: relax.Expr | None, values: Values
    ) -> relax.Expr:
        """The chain after ``y``; the last operator is not bound yet."""
        steps: list[Callable[[relax.Expr], relax.Expr]] = []
        if self.bias is not None:
            bias = values(*self.bias)
            steps.append(lambda y: op.add(y, bias))
        if self.residual:
            steps.append(lambda y: op.add(y, residual))
        if self.activation:
            steps.append(getattr(op.nn, self.activation))
        for step in steps:
            y = step(y if isinstance(y, relax.Var) else emit(y))
        return y


def dense(
    x_shape: Sequence[int],
    columns: int,
    chain: Chain,
    dtype: str,
    *,
    seed: int,
    variable_weights: bool = False,
) -> tvm.IRModule:
    """``activation(x @ weights + bias + residual)``."""
    values = seeded(seed, dtype)
    inner = x_shape[-1]
    shapes = [list(x_shape)]
    if variable_weights:
        shapes.append([inner, columns])
    if chain.residual:
        shapes.append([*x_shape[:-1], columns])

    def body(emit: Emit, x: relax.Expr, *others: relax.Expr) -> relax.Expr:
        weights = others[0] if variable_weights else values(inner, columns, scale=inner**-0.5)
        residual = others[-1] if chain.residual else None
        return chain.emit(emit, op.matmul(x, weights), residual, values)

    return graph(shapes, body, dtype)


def product(
    lhs: Sequence[int],
    rhs: Sequence[int],
    dtype: str,
    *,
    lhs_axes: list[int] | None = None,
    rhs_axes: list[int] | None = None,
    result_axes: list[int] | None = None,
    chain: Chain | None = None,
    seed: int = 0,
) -> tvm.IRModule:
    """A product of two inputs, each behind an optional ``permute_dims``, and one after it."""
    values = seeded(seed, dtype)

    def body(emit: Emit, a: relax.Expr, b: relax.Expr) -> relax.Expr:
        a = a if lhs_axes is None else emit(op.permute_dims(a, lhs_axes))
        b = b if rhs_axes is None else emit(op.permute_dims(b, rhs_axes))
        y = op.matmul(a, b)
        y = y if chain is None else chain.emit(emit, y, None, values)
        return y if result_axes is None else op.permute_dims(emit(y), result_axes)

    return graph([lhs, rhs], body, dtype)


def convolution(
    x_shape: Sequence[int], channels: int, chain: Chain, dtype: str, *, seed: int
) -> tvm.IRModule:
    """A 1×1 convolution on NHWC data and what follows it."""
    values = seeded(seed, dtype)
    inner = x_shape[-1]
    shapes = [list(x_shape)] + [[*x_shape[:-1], channels]] * chain.residual

    def body(emit: Emit, x: relax.Expr, *others: relax.Expr) -> relax.Expr:
        weights = values(channels, 1, 1, inner, scale=inner**-0.5)
        layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}
        y = op.nn.conv2d(x, weights, **layouts)
        return chain.emit(emit, y, others[0] if others else None, values)

    return graph(shapes, body, dtype)


def seeded(seed: int, dtype: str) -> Values:
    """A maker of constants, the same ones at every run."""
    rng = np.random.default_rng(seed)

    def make(*shape: int, scale: float = 1.0) -> relax.Expr:
        return constant(*shape, rng=rng, scale=scale, dtype=dtype)

    return make


def gram(shape: Sequence[int], dtype: str) -> tvm.IRModule:
    """A matrix times its own transpose: both operands are the same memory."""

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        axes = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        return op.matmul(x, emit(op.permute_dims(x, axes)))

    return graph([shape], body, dtype)
