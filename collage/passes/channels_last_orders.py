"""Orders of axes, and what a rule that runs operators in another one sees and answers.

An order is a tuple as ``permute_dims`` takes it: ``(0, 2, 3, 1)`` says that axis 1 of the value,
its channels, comes last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tvm import relax

Axes = tuple[int, ...]


PLANE_SWAPPED: Axes = (0, 1, 3, 2)
"""The order of the inner (N, 1, C, H * W) of a local response normalization, channels last."""


def channels_last(rank: int) -> Axes:
    """The order of a value (N, C, ...) whose channels come last.

    Parameters
    ----------
    rank : int
        Its number of axes.
    """
    return (0, *range(2, rank), 1)


def channels_first(rank: int) -> Axes:
    """The inverse: what brings a channels-last value back.

    Parameters
    ----------
    rank : int
        Its number of axes.
    """
    return (0, rank - 1, *range(1, rank - 1))


def identity(rank: int) -> Axes:
    """A value's own order.

    Parameters
    ----------
    rank : int
        Its number of axes.
    """
    return tuple(range(rank))


class Orders(Protocol):
    """What rules may ask about operands of the old function."""

    def of(self, expr: relax.Expr) -> Axes:
        """An order in which the value exists, another than its own if there is one."""

    def get(self, expr: relax.Expr, axes: Axes) -> relax.Expr:
        """The value in this order.

        Parameters
        ----------
        expr : relax.Expr
            The value.
        axes : Axes
            The order.

        Returns
        -------
        relax.Expr
            Permuted now if it does not exist so yet.
        """


@dataclass(frozen=True)
class Answer:
    """New expressions for a binding, each with the order of axes that it has."""

    results: tuple[tuple[relax.Expr, Axes], ...]


def one(expr: relax.Expr, order: Axes) -> Answer:
    """The answer of one expression.

    Parameters
    ----------
    expr : relax.Expr
        What the binding becomes.
    order : tuple of int
        Of its axes.

    Returns
    -------
    Answer
        Of a single value.
    """
    return Answer(((expr, order),))


Rule = Callable[[Orders, relax.Expr], Answer | None]
"""Shown a call of the old function; None leaves its operands as they were."""
