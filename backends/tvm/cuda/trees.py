"""Ensembles of trees on a GPU: a thread walks some trees for one row."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tvm import relax
from tvm.script.ir_builder import tirx as T

from collage.backends.relax.launch import kernel
from collage.backends.relax.trees import Ensemble
from collage.backends.relax.trees.program import Cut, legalize

_THREADS = 128

_TASKS, _FEWEST_TREES = 1 << 16, 4
"""Tasks that keep a device busy, and trees of one that is worth its result."""


def legalize_trees(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A call of the operator as one tensor program with threads of its own.

    Parameters
    ----------
    builder, call
        What takes the program, and a call of the operator.

    Returns
    -------
    relax.Expr
        A call of the program, or the first of its results.
    """
    one = Ensemble.of(call)
    wanted = math.ceil(_TASKS / one.rows)
    chunks = max(1, min(wanted, one.trees // _FEWEST_TREES))
    return legalize(builder, call, Cut(1, chunks), _tasks)


@contextmanager
def _tasks(count: int) -> Iterator[Any]:
    """A kernel in which a task is a thread's."""
    with kernel(math.ceil(count / _THREADS), _THREADS) as (block, thread):
        task = block * _THREADS + thread
        with T.If(task < count), T.Then():
            yield task
