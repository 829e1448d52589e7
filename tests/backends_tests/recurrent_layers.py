"""Whole recurrent layers, weights and all, for the backends that have a call for one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.relax.recurrent import DIRECTIONS, GATES, Recurrence, recurrent
from collage.testing.graphs import Emit, constant, graph

KINDS = [(cell, direction) for cell in GATES for direction in DIRECTIONS]


def layer(
    one: Recurrence,
    features: int,
    *,
    bias: bool = True,
    given: bool = True,
    rng: np.random.Generator | None = None,
) -> tvm.IRModule:
    """A layer on an input, and on its first states where these are ``given``, else zero."""
    directions = len(one.backwards)
    width, state = one.gates * one.hidden, (directions, one.batch, one.hidden)
    own = constant(features, directions * width, scale=features**-0.5, rng=rng)
    weights = constant(directions, one.hidden, width, scale=one.hidden**-0.5, rng=rng)
    added = constant(directions * width, scale=0.5, rng=rng)
    last = constant(directions, one.hidden, scale=0.5, rng=rng)
    lengths = relax.const(np.arange(one.batch, dtype="int32") % (one.steps + 1))
    zeros = relax.const(np.zeros(state, np.float32))
    shapes: list[Sequence[int]] = [(one.steps, one.batch, features)]
    shapes += [state] * (one.states if given else 0)

    def body(emit: Emit, x: relax.Expr, *states: relax.Expr) -> relax.Expr:
        taken = emit(op.matmul(x, own))
        if bias:
            taken = emit(op.add(taken, added))
        operands = [taken, weights, *(states or [zeros] * one.states)]
        operands += [last] * one.has_bias + [lengths] * one.has_lengths
        return recurrent(one.cell, one.direction, operands)

    return graph(shapes, body)
