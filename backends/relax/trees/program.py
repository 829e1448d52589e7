"""The operator as one tensor program: tasks of some rows and some trees, walked several at once.

A step of a walk waits for a node, for a feature, and for their comparison, so walks go side by
side: of several rows down one tree, or where there are few rows, of one row down several trees.
They end when none of them has moved. A task that would reach past the last row begins earlier, and
computes some rows twice, to the same values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from collage.backends.relax.trees.operator import LINK, STRICT, Ensemble

Tasks = Callable[[int], AbstractContextManager[Any]]
"""A loop over so many tasks that do not depend on each other; gives the task's number."""


@dataclass(frozen=True)
class Cut:
    """How the work is cut.

    Attributes
    ----------
    rows : int
        Of a task; at most as many as there are.
    chunks : int
        Tasks among which the trees are shared out, whose results are combined afterwards.
    walks : int
        Side by side.
    of_rows : bool
        Whether these are of several rows down one tree, rather than of one row down several trees.
    """

    rows: int
    chunks: int = 1
    walks: int = 1
    of_rows: bool = True


def legalize(builder: relax.BlockBuilder, call: relax.Call, cut: Cut, tasks: Tasks) -> relax.Expr:
    """A call of the operator as one tensor program.

    Parameters
    ----------
    builder, call
        What takes the program, and a call of the operator.
    cut : Cut
        How it is cut.
    tasks : callable
        How tasks run.

    Returns
    -------
    relax.Expr
        A call of the program, or the first of its results.
    """
    one = Ensemble.of(call)
    shapes: list[list[int]] = [[one.rows, one.targets]]
    if cut.chunks > 1:
        shapes.append([cut.chunks, one.rows, one.targets])

    def program(*tensors: te.Tensor) -> Any:
        return te.extern(
            shapes,
            list(tensors),
            lambda ins, outs: _Writer(one, cut, tasks, ins, outs).written(),
            name="trees",
            dtype=[one.dtype] * len(shapes),
            # TVM's own begin somewhere, which would be added to each index.
            in_buffers=[tirx.decl_buffer(t.shape, t.dtype, name=t.op.name) for t in tensors],
            out_buffers=[
                tirx.decl_buffer(shape, one.dtype, name=f"made{index}")
                for index, shape in enumerate(shapes)
            ],
        )

    made = builder.call_te(program, *call.args, primfunc_name_hint="trees")
    if cut.chunks == 1:
        return made
    # What chunks make is nobody else's business.
    return relax.TupleGetItem(builder.emit(made), 0)


def legalize_plainly(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """As :func:`legalize`, cut so that it runs on any machine.

    Parameters
    ----------
    builder, call
        What takes the program, and a call of the operator.

    Returns
    -------
    relax.Expr
        A call of the program.
    """
    return legalize(builder, call, Cut(1), lambda count: T.parallel(0, count))


class _Writer:
    """Writes the program's body."""

    def __init__(
        self, one: Ensemble, cut: Cut, tasks: Tasks, ins: Sequence[Any], outs: Sequence[Any]
    ) -> None:
        self._one, self._cut, self._tasks = one, cut, tasks
        self._x, self._nodes, self._trees, *leaves = (T.buffer_proxy(buffer) for buffer in ins)
        self._leaves = leaves[0] if leaves else None
        self._out, *parts = (T.buffer_proxy(buffer) for buffer in outs)
        self._parts = parts[0] if parts else None

    def written(self) -> Any:
        """The body, a statement."""
        one, cut = self._one, self._cut
        blocks = math.ceil(one.rows / cut.rows)
        with IRBuilder() as ib:
            with T.seq_scope():
                with self._tasks(blocks * cut.chunks) as task:
                    self._task(task // cut.chunks, task % cut.chunks)
                if self._parts is not None:
                    with self._tasks(one.rows * one.targets) as element:
                        self._combine(element // one.targets, element % one.targets)
            return ib.get()

    def _task(self, block: Any, chunk: Any) -> None:
        one, cut = self._one, self._cut
        first = block * cut.rows
        if one.rows % cut.rows:
            first = tirx.min(first, one.rows - cut.rows)
        self._first = first
        self._sums = T.buffer_proxy(
            T.decl_buffer([cut.rows, one.targets], one.dtype, scope="local")
        )
        with T.serial(0, cut.rows) as row, T.serial(0, one.targets) as target:
            self._sums[row, target] = tirx.const(one.neutral, one.dtype)
        self._at = T.buffer_proxy(T.decl_buffer([cut.walks], "int32", scope="local"))
        self._moved = T.buffer_proxy(T.decl_buffer([1], "int32", scope="local"))
        groups = one.trees if cut.of_rows else math.ceil(one.trees / cut.walks)
        begin, end = (place * groups // cut.chunks for place in (chunk, chunk + 1))
        if cut.chunks == 1:
            begin, end = 0, groups
        with T.serial(0, end - begin) as turn:
            self._group(begin + turn)
        with T.serial(0, cut.rows) as row, T.serial(0, one.targets) as target:
            value = self._sums[row, target]
            if self._parts is None:
                self._out[first + row, target] = value
            else:
                self._parts[chunk, first + row, target] = value

    def _group(self, group: Any) -> None:
        """One tree and all rows of the task, or several trees and each of its rows."""
        cut = self._cut
        if cut.of_rows:
            with T.serial(0, math.ceil(cut.rows / cut.walks)) as some:
                rows = self._side_by_side(some, cut.rows)
                self._walk([(row, group, counts) for row, counts in rows])
        else:
            with T.serial(0, cut.rows) as row:
                trees = self._side_by_side(group, self._one.trees)
                self._walk([(row, tree, counts) for tree, counts in trees])

    def _side_by_side(self, group: Any, extent: int) -> list[tuple[Any, Any]]:
        """Each walk's place, and where there may be too few of them, whether it counts."""
        walks = self._cut.walks
        places = [group * walks + lane for lane in range(walks)]
        if extent % walks == 0:
            return [(place, None) for place in places]
        return [(tirx.min(place, extent - 1), place < extent) for place in places]

    def _walk(self, walks: list[tuple[Any, Any, Any]]) -> None:
        """From the roots to the leaves: all walks take a step, until nobody has moved."""
        at, moved = self._at, self._moved
        for lane, (_, tree, _) in enumerate(walks):
            at[lane] = self._trees[tree, 0]
        moved[0] = 1
        with T.While(moved[0] != 0):
            moved[0] = 0
            for lane, (row, _, _) in enumerate(walks):
                following = self._following(at[lane], row)
                moved[0] = moved[0] | (following ^ at[lane])
                at[lane] = following
        for lane, (row, tree, counts) in enumerate(walks):
            self._add(self._word(at[lane], 3), row, tree, counts)

    def _following(self, node: Any, row: Any) -> Any:
        """Where a walk goes on from a node; a leaf's threshold is not a number."""
        one = self._one
        value = self._x[self._first + row, self._index(node, 0)]
        threshold = self._number(self._word(node, 1))
        above, below = self._index(node, 2), self._index(node, 3)

        def bit(condition: Any) -> Any:
            return tirx.Cast("int32", condition)

        # In bits: what is joined or chosen becomes a branch, which no processor foresees.
        holds = bit(value < threshold) if one.compared == "lt" else bit(value <= threshold)
        if one.compared == "both":
            strict = tirx.shift_right(above, tirx.const(STRICT.bit_length() - 1, "int32"))
            holds = holds & ~(strict & bit(value == threshold))
        if one.missing:
            holds = holds | (above & bit(tirx.isnan(value)))
        if one.missing or one.compared == "both":
            above, holds = above & -LINK, holds & 1
        return above ^ ((above ^ below) & -holds)

    def _word(self, node: Any, which: int) -> Any:
        return self._nodes[node + which]

    def _index(self, node: Any, which: int) -> Any:
        return self._narrow(self._word(node, which))

    def _narrow(self, word: Any) -> Any:
        return word if self._one.word == "int32" else tirx.Cast("int32", word)

    def _number(self, word: Any) -> Any:
        """What a word has the bits of, in the type of the table."""
        one = self._one
        number = T.reinterpret(one.threshold, word)
        return number if one.threshold == one.dtype else tirx.Cast(one.dtype, number)

    def _add(self, word: Any, row: Any, tree: Any, counts: Any) -> None:
        """What a leaf says, to what the row's other leaves have said."""
        one = self._one
        if self._leaves is None:
            self._tell(row, self._trees[tree, 1], self._number(word), counts)
            return
        leaf = self._narrow(word)
        with T.serial(0, one.targets) as target:
            self._tell(row, target, self._leaves[leaf, target], counts)

    def _tell(self, row: Any, target: Any, value: Any, counts: Any) -> None:
        if counts is not None:
            value = tirx.Select(counts, value, tirx.const(self._one.neutral, self._one.dtype))
        self._sums[row, target] = self._both(self._sums[row, target], value)

    def _both(self, one: Any, other: Any) -> Any:
        combine = {"sum": lambda: one + other, "min": lambda: tirx.min(one, other)}
        return combine.get(self._one.combined, lambda: tirx.max(one, other))()

    def _combine(self, row: Any, target: Any) -> None:
        """What all chunks have made of a result."""
        assert self._parts is not None
        self._out[row, target] = self._parts[0, row, target]
        with T.serial(1, self._cut.chunks) as chunk:
            self._out[row, target] = self._both(
                self._out[row, target], self._parts[chunk, row, target]
            )
