"""Small Relax modules for the backends' tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import relax

Emit = Callable[[relax.Expr], relax.Var]


def graph(
    shapes: Sequence[Sequence[int]],
    body: Callable[..., relax.Expr],
    dtype: str | Sequence[str] = "float32",
) -> tvm.IRModule:
    """A module whose ``main`` takes inputs of the given shapes.

    Parameters
    ----------
    shapes : sequence of sequence of int
        One per input.
    body : callable
        ``body(emit, x0, x1, ...)`` gives the result; ``emit`` binds one operator to a variable.
    dtype : str or sequence of str
        Of all inputs, or of each.

    Returns
    -------
    tvm.IRModule
        Its parameters are ``x0``, ``x1`` and so on.

    Examples
    --------
    >>> from tvm.relax import op
    >>> mod = graph([(2, 8)], lambda emit, x: op.multiply(x, emit(op.sigmoid(x))))
    >>> [str(binding.value.op.name) for binding in mod["main"].body.blocks[0].bindings]
    ['relax.sigmoid', 'relax.multiply']
    """
    kinds = [dtype] * len(shapes) if isinstance(dtype, str) else dtype
    params = [
        relax.Var(f"x{i}", relax.TensorType(shape, kind))
        for i, (shape, kind) in enumerate(zip(shapes, kinds, strict=True))
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(builder.emit, *params))
        builder.emit_func_output(result)
    return builder.get()


def constant(
    *shape: int, rng: np.random.Generator | None = None, scale: float = 1.0, dtype: str = "float32"
) -> relax.Expr:
    """A constant of normally distributed values, new ones at every call.

    Parameters
    ----------
    *shape : int
        Its extents.
    rng : numpy.random.Generator, optional
        Where its values come from, for the same ones at every run.
    scale : float
        Their standard deviation.
    dtype : str
        What they are rounded to.

    Returns
    -------
    relax.Expr
        Of float32 unless said otherwise.

    Examples
    --------
    >>> weights = constant(8, 4, rng=np.random.default_rng(0), dtype="float16")
    >>> weights.value.numpy().shape
    (8, 4)
    """
    values = (rng or np.random.default_rng()).standard_normal(shape) * scale
    return relax.const(values.astype(dtype), dtype)
