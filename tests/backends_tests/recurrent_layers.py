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
    apart: bool = False,
    rng: np.random.Generator | None = None,
) -> tvm.IRModule:
    """A layer on an input, and on its first states where these are ``given``, else zero.

    An input of numbers up to 1 says how many eighths of 8 steps each sequence has. With results
    ``apart`` the tuple's items are taken out of it.
    """
    directions = len(one.backwards)
    width, state = one.gates * one.hidden, (directions, one.batch, one.hidden)
    own = constant(features, directions * width, scale=features**-0.5, rng=rng)
    # Small enough that states, and errors in them, do not grow from step to step.
    weights = constant(directions, one.hidden, width, scale=0.5 * one.hidden**-0.5, rng=rng)
    added = constant(directions * width, scale=0.5, rng=rng)
    last = constant(directions, one.hidden, scale=0.5, rng=rng)
    zeros = relax.const(np.zeros(state, np.float32))
    shapes: list[Sequence[int]] = [(one.steps, one.batch, features)]
    shapes += [state] * (one.states if given else 0)
    shapes += [(one.batch,)] * one.has_lengths

    def body(emit: Emit, x: relax.Expr, *others: relax.Expr) -> relax.Expr:
        taken = emit(op.matmul(x, own))
        if bias:
            taken = emit(op.add(taken, added))
        operands = [taken, weights, *(others[: one.states] if given else [zeros] * one.states)]
        operands += [last] * one.has_bias
        if one.has_lengths:
            share = emit(op.multiply(emit(op.abs(others[-1])), relax.const(8.0, "float32")))
            operands.append(emit(op.astype(share, "int32")))
        results = recurrent(one.cell, one.direction, operands, one.stepped)
        if not apart:
            return results
        bound = emit(results)
        return relax.Tuple([emit(relax.TupleGetItem(bound, i)) for i in range(1 + one.states)])

    return graph(shapes, body)
