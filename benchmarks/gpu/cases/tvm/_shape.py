"""One workload at a size that networks have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import relax

Emit = Callable[[relax.Expr], relax.Var]


@dataclass(frozen=True)
class Shape:
    """A workload of one family.

    Attributes
    ----------
    name : str
    inputs : sequence of (shape, dtype)
        The data type ``""`` stands for the case's own.
    body : callable
        ``body(emit, weights, *inputs)``; ``weights(*shape)`` is a seeded constant.
    flops : float
        Multiplications and additions, where a product decides; 0 where memory does.
    dtypes : tuple of str
    """

    name: str
    inputs: Sequence[tuple[tuple[int, ...], str]]
    body: Callable[..., relax.Expr]
    flops: float = 0.0
    dtypes: tuple[str, ...] = ("float16", "float32")
