"""The body of the recurrent operator's tensor program: a loop over its steps.

A task is one direction and a few rows of the batch. It computes the columns of the state in blocks,
all gates of a block together: their sums stay in registers while the weights stream by once for all
rows of the task, and the functions follow at once.

Blocks and tasks that would reach past the end begin earlier and compute some columns or rows twice:
states are read from one buffer and written to another, so that gives the same values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from collage.backends.relax.recurrent.blocking import Blocking, parts
from collage.backends.relax.recurrent.operator import Recurrence

_WIDE = {"float16": "float32", "bfloat16": "float32"}


class Writer:
    """Writes the program's body.

    Parameters
    ----------
    recurrence : Recurrence
        What is computed.
    blocking : Blocking
        How it is cut.
    ins, outs : sequence of buffer
        The operator's operands and results.
    """

    def __init__(
        self, recurrence: Recurrence, blocking: Blocking, ins: Sequence[Any], outs: Sequence[Any]
    ) -> None:
        self._one = recurrence
        self._cut = blocking
        self._in = recurrence.operands([T.buffer_proxy(buffer) for buffer in ins])
        self._out = [T.buffer_proxy(buffer) for buffer in outs]
        self._dtype = _WIDE.get(recurrence.dtype, recurrence.dtype)
        # Rows of a task's states: where these are rounded, the range is that of all rows.
        self._held = recurrence.batch if recurrence.stepped else blocking.rows

    def written(self) -> Any:
        """The body, a statement."""
        one, cut = self._one, self._cut
        tasks = math.ceil(one.batch / self._held)
        with IRBuilder() as ib:
            kind = T.serial if cut.shared_steps else T.parallel
            # Directions part outside: which way a step lies is known where it is written.
            if len(one.backwards) == 1:
                with kind(0, tasks) as task:
                    self._task(0, task)
            else:
                with kind(0, 2 * tasks) as both, T.If(both < tasks):
                    with T.Then():
                        self._task(0, both)
                    with T.Else():
                        self._task(1, both - tasks)
            return ib.get()

    def _task(self, direction: int, task: Any) -> None:
        one, held = self._one, self._held
        first = _place(task, self._held, one.batch)
        # Of each state two copies: what a step reads, and what it writes.
        self._state = [
            T.buffer_proxy(T.decl_buffer([2, held, one.hidden], self._dtype, scope="global"))
            for _ in range(one.states)
        ]
        for state, name in zip(self._state, ("h0", "c0"), strict=False):
            with T.serial(0, held) as row, T.serial(0, one.hidden) as column:
                state[0, row, column] = self._wide(self._in[name][direction, first + row, column])
        if one.cell == "gru":
            self._kept = [
                T.buffer_proxy(T.decl_buffer([held, one.hidden], self._dtype, scope="global"))
                for _ in range(2)
            ]
        if one.stepped:
            self._rounded = T.buffer_proxy(
                T.decl_buffer([held, one.hidden], self._dtype, scope="global")
            )
        with T.serial(0, one.steps) as count:
            step = one.steps - 1 - count if one.backwards[direction] else count
            old = count % 2
            if one.stepped:
                self._round(old)
            for index in range(len(parts(one))):
                self._step(direction, index, first, step, old)
        for state, out in zip(self._state, self._out[1:], strict=True):
            with T.serial(0, held) as row, T.serial(0, one.hidden) as column:
                out[direction, first + row, column] = self._narrow(
                    state[one.steps % 2, row, column]
                )

    def _round(self, old: Any) -> None:
        """The hidden state in 256 steps over its own range, which has zero in it."""
        one, cut, dtype = self._one, self._cut, self._dtype
        low, high = (
            T.buffer_proxy(T.decl_buffer([cut.columns], dtype, scope="local")) for _ in range(2)
        )
        scale, point = (T.buffer_proxy(T.decl_buffer([1], dtype, scope="local")) for _ in range(2))
        zero, most = tirx.const(0.0, dtype), tirx.const(255.0, dtype)
        with T.vectorized(0, cut.columns) as lane:
            low[lane] = zero
            high[lane] = zero
        blocks = math.ceil(one.hidden / cut.columns)
        with T.serial(0, self._held) as row, T.serial(0, blocks) as block:
            start = _place(block, cut.columns, one.hidden)
            with T.vectorized(0, cut.columns) as lane:
                value = self._state[0][old, row, start + lane]
                low[lane] = tirx.min(low[lane], value)
                high[lane] = tirx.max(high[lane], value)
        with T.serial(1, cut.columns) as lane:
            low[0] = tirx.min(low[0], low[lane])
            high[0] = tirx.max(high[0], high[lane])
        scale[0] = (high[0] - low[0]) / most
        with T.If(scale[0] == zero), T.Then():
            scale[0] = tirx.const(1.0, dtype)
        point[0] = tirx.nearbyint(tirx.max(tirx.min((zero - low[0]) / scale[0], most), zero))
        with T.serial(0, self._held) as row, T.serial(0, blocks) as block:
            start = _place(block, cut.columns, one.hidden)
            with T.vectorized(0, cut.columns) as lane:
                value = self._state[0][old, row, start + lane] / scale[0]
                shifted = tirx.nearbyint(value) + point[0]
                shifted = tirx.max(tirx.min(shifted, most), zero)
                self._rounded[row, start + lane] = (shifted - point[0]) * scale[0]

    def _step(self, direction: int, index: int, first: Any, step: Any, old: Any) -> None:
        """One part of the gates, all blocks of the task's rows."""
        one, cut = self._one, self._cut
        blocks = math.ceil(one.hidden / cut.columns)
        kind = T.parallel if cut.shared_steps and blocks > 1 else T.serial
        with T.serial(0, math.ceil(self._held / cut.rows)) as group, kind(0, blocks) as block:
            above = _place(group, cut.rows, self._held)
            sums = self._sums(direction, index, first, above, step, old, block)
            start = _place(block, cut.columns, one.hidden)
            for row in range(cut.rows):
                held = above + row
                with T.vectorized(0, cut.columns) as lane:
                    place = _Place(direction, first + held, held, step, old, start + lane, lane)
                    self._cell(index, [gate[row] for gate in sums], place)

    def _sums(
        self,
        direction: int,
        index: int,
        first: Any,
        above: Any,
        step: Any,
        old: Any,
        block: Any,
    ) -> list[list[Any]]:
        """What the gates' functions are applied to: by gate, by row, the columns of a block."""
        one, cut = self._one, self._cut
        part = parts(one)[index]
        start = _place(block, cut.columns, one.hidden)
        sums = [
            [
                T.buffer_proxy(T.decl_buffer([cut.columns], self._dtype, scope="local"))
                for _ in range(cut.rows)
            ]
            for _ in part
        ]
        for gate, rows in zip(part, sums, strict=True):
            for row, total in enumerate(rows):
                with T.vectorized(0, cut.columns) as lane:
                    total[lane] = self._beginning(
                        direction, gate, first + above + row, step, start + lane
                    )
        with T.serial(0, one.hidden) as k:
            for place, (gate, rows) in enumerate(zip(part, sums, strict=True)):
                for row, total in enumerate(rows):
                    factor = self._factor(index, above + row, k, old)
                    with T.vectorized(0, cut.columns) as lane:
                        total[lane] = total[lane] + factor * self._weight(
                            direction, index, block, gate, place, k, start, lane
                        )
        return sums

    def _factor(self, index: int, row: Any, k: Any, old: Any) -> Any:
        if self._one.stepped:
            return self._rounded[row, k]
        return self._kept[1][row, k] if index else self._state[0][old, row, k]

    def _beginning(self, direction: int, gate: int, row: Any, step: Any, column: Any) -> Any:
        one = self._one
        if one.has_bias and gate == 2:
            # What the input gives is added behind the reset.
            return self._wide(self._in["bias"][direction, column])
        return self._taken(direction, gate, row, step, column)

    def _taken(self, direction: int, gate: int, row: Any, step: Any, column: Any) -> Any:
        one = self._one
        offset = (direction * one.gates + gate) * one.hidden
        return self._wide(self._in["taken"][step, row, offset + column])

    def _weight(
        self,
        direction: int,
        index: int,
        block: Any,
        gate: int,
        place: int,
        k: Any,
        start: Any,
        lane: Any,
    ) -> Any:
        one, cut = self._one, self._cut
        if not cut.packed:
            column = gate * one.hidden + start + lane
            return self._wide(self._in["weights"][direction, k, column])
        blocks = math.ceil(one.hidden / cut.columns)
        before = direction * one.gates + parts(one)[index][0]
        many = len(parts(one)[index])
        offset = before * blocks + block * many
        row = offset * one.hidden + k * many + place
        return self._in["weights"][row * cut.columns + lane]

    def _cell(self, index: int, sums: list[Any], place: _Place) -> None:
        """The functions of a step's gates, at one column of the state."""
        values = [total[place.lane] for total in sums]
        match self._one.cell:
            case "rnn_tanh":
                self._keep(place, [tirx.tanh(values[0])])
            case "rnn_relu":
                self._keep(place, [tirx.max(values[0], tirx.const(0.0, self._dtype))])
            case "lstm":
                self._lstm(sums, place)
            case "gru_reset_after":
                # Each function's value is stored before another is applied: TVM's time for nested
                # ones grows exponentially.
                for total, value in zip(sums[:2], values[:2], strict=True):
                    total[place.lane] = tirx.sigmoid(value)
                given = self._taken(place.direction, 2, place.given_row, place.step, place.column)
                sums[2][place.lane] = tirx.tanh(given + sums[1][place.lane] * values[2])
                self._mix(sums[0][place.lane], sums[2][place.lane], place)
            case "gru" if index == 0:
                z, kept = self._kept
                z[place.row, place.column] = tirx.sigmoid(values[0])
                sums[1][place.lane] = tirx.sigmoid(values[1])
                kept[place.row, place.column] = sums[1][place.lane] * self._old(0, place)
            case "gru":
                sums[0][place.lane] = tirx.tanh(values[0])
                self._mix(self._kept[0][place.row, place.column], sums[0][place.lane], place)

    def _lstm(self, sums: list[Any], place: _Place) -> None:
        lane = place.lane
        functions: list[Callable[[Any], Any]] = [tirx.sigmoid] * 3 + [tirx.tanh]
        for function, total in zip(functions, sums, strict=True):
            total[lane] = function(total[lane])
        i, o, f, candidate = sums
        candidate[lane] = f[lane] * self._old(1, place) + i[lane] * candidate[lane]
        f[lane] = tirx.tanh(candidate[lane])
        self._keep(place, [o[lane] * f[lane], candidate[lane]])

    def _mix(self, z: Any, new: Any, place: _Place) -> None:
        self._keep(place, [new + z * (self._old(0, place) - new)])

    def _old(self, which: int, place: _Place) -> Any:
        return self._state[which][place.old, place.row, place.column]

    def _keep(self, place: _Place, states: list[Any]) -> None:
        """Store what a step makes, but for sequences that have ended."""
        output = states[0]
        if self._one.has_lengths:
            live = self._in["lengths"][place.given_row] > tirx.Cast("int32", place.step)
            output = tirx.Select(live, output, tirx.const(0.0, self._dtype))
            states = [
                tirx.Select(live, new, self._old(which, place)) for which, new in enumerate(states)
            ]
        direction, row, column = place.direction, place.given_row, place.column
        self._out[0][place.step, direction, row, column] = self._narrow(output)
        for state, value in zip(self._state, states, strict=True):
            state[1 - place.old, place.row, column] = value

    def _wide(self, value: Any) -> Any:
        return value if self._dtype == self._one.dtype else tirx.Cast(self._dtype, value)

    def _narrow(self, value: Any) -> Any:
        return value if self._dtype == self._one.dtype else tirx.Cast(self._one.dtype, value)


@dataclass(frozen=True)
class _Place:
    """One column of one row's state at one step."""

    direction: int
    given_row: Any
    row: Any
    step: Any
    old: Any
    column: Any
    lane: Any


def _place(block: Any, size: int, extent: int) -> Any:
    """Where a block begins: the last one ends with the whole."""
    if extent % size == 0:
        return block * size
    return tirx.min(block * size, extent - size)
