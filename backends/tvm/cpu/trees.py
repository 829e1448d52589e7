"""How ensembles of trees are cut for a CPU."""

from __future__ import annotations

import math

from tvm import relax
from tvm.script.ir_builder import tirx as T

from collage.backends.relax.trees import Ensemble
from collage.backends.relax.trees.program import Cut, legalize
from collage.backends.tvm.common.machine import Machine

_ROWS_AT_ONCE, _TREES_AT_ONCE = 16, 8
"""Walks side by side: as many as hide what a step waits for."""

_MOST_BYTES = 32 << 10
"""Of a task's rows and of its results: they stay in a core's first cache."""

_FEWEST_WALKS = 2048
"""In a task: fewer take less time than handing them to another thread."""


def legalize_trees(builder: relax.BlockBuilder, call: relax.Call, machine: Machine) -> relax.Expr:
    """A call of the operator as one tensor program that runs on a pool of threads.

    Parameters
    ----------
    builder, call
        What takes the program, and a call of the operator.
    machine : Machine
        Its threads decide how it is cut.

    Returns
    -------
    relax.Expr
        A call of the program, or the first of its results.
    """
    cut = cut_of(Ensemble.of(call), machine.num_threads)
    return legalize(builder, call, cut, lambda count: T.parallel(0, count))


def cut_of(one: Ensemble, threads: int) -> Cut:
    """Tasks enough for all threads, each of rows that are walked side by side.

    Parameters
    ----------
    one : Ensemble
        What is to be computed.
    threads : int
        That take part.

    Returns
    -------
    Cut
        Trees are walked side by side where there are few rows, and shared out where that leaves
        threads idle.

    Examples
    --------
    >>> one = Ensemble(1, 30, 5000, 1, "float32", "sum", "leq", False, False)
    >>> cut_of(one, 4)
    Cut(rows=1, chunks=2, walks=8, of_rows=False)
    """
    of_rows = one.rows >= _ROWS_AT_ONCE
    rows = min(one.rows, _rows_of_a_task(one, threads)) if of_rows else 1
    walks = _ROWS_AT_ONCE if of_rows else min(_TREES_AT_ONCE, one.trees)
    tasks = math.ceil(one.rows / rows)
    spare = max(1, threads // tasks)
    chunks = min(spare, max(1, rows * one.trees // _FEWEST_WALKS))
    groups = one.trees if of_rows else math.ceil(one.trees / walks)
    return Cut(rows, min(chunks, groups), walks, of_rows)


def _rows_of_a_task(one: Ensemble, threads: int) -> int:
    """A multiple of those that are walked side by side: several tasks for each thread."""
    widest = max(one.features, one.targets) * (8 if one.dtype == "float64" else 4)
    most = max(1, _MOST_BYTES // widest // _ROWS_AT_ONCE)
    fair = math.ceil(one.rows / (4 * threads) / _ROWS_AT_ONCE)
    fewest = math.ceil(_FEWEST_WALKS / one.trees / _ROWS_AT_ONCE)
    return _ROWS_AT_ONCE * min(most, max(fair, fewest))
