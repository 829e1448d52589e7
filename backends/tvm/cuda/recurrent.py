"""The steps of LSTM, GRU and RNN on a GPU: all of them in one kernel, or a kernel a step.

A block computes some columns of the state for a few rows of the batch. Its threads share out the
products of a column: each adds up its part of them for all gates, and who has the column adds up
the parts and applies the cell's functions.

Where the weights fit into the cache of a multiprocessor, one block does all columns of its rows,
step after step, and waits for nobody. Larger ones are read by many blocks, and the end of a kernel
is what all of them wait for before the next step begins.

States are kept in float32 from step to step, whatever the type of the results.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from collage.backends.relax.recurrent import Recurrence
from collage.backends.relax.recurrent.blocking import parts
from collage.backends.tvm.cuda.recurrent_cut import STEP_THREADS, Cut, cut_of

_WIDE = {"float16": "float32", "bfloat16": "float32"}


def legalize_recurrent(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A call of the recurrent operator as one tensor program with threads of its own.

    Parameters
    ----------
    builder : relax.BlockBuilder
        Takes the program.
    call : relax.Call
        Of the operator; its states are not rounded to 256 steps.

    Returns
    -------
    relax.Expr
        A tuple of the call's results, in its order.
    """
    one = Recurrence.of(call)
    outputs = [[int(n) for n in field.shape] for field in call.ty.fields]
    wide = _WIDE.get(one.dtype, one.dtype)
    kept = [_kept_states(one), *outputs[1]]
    types = [one.dtype] * len(outputs) + [wide]

    def program(*tensors: te.Tensor) -> Sequence[te.Tensor]:
        made: Sequence[te.Tensor] = te.extern(
            [*outputs, kept],
            list(tensors),
            lambda ins, outs: _Kernels(one, cut_of(one), ins, outs).written(),
            name=one.cell,
            dtype=types,
            # TVM's own begin somewhere, which kernels would add to each index.
            in_buffers=[tirx.decl_buffer(t.shape, t.dtype, name=t.op.name) for t in tensors],
            out_buffers=[
                tirx.decl_buffer(shape, dtype, name=f"made{index}")
                for index, (shape, dtype) in enumerate(zip([*outputs, kept], types, strict=True))
            ],
        )
        return made

    made = builder.emit(builder.call_te(program, *call.args, primfunc_name_hint=one.cell))
    # The states that steps hand on are nobody else's business.
    return relax.Tuple([relax.TupleGetItem(made, index) for index in range(len(outputs))])


def _kept_states(one: Recurrence) -> int:
    """Tensors that steps hand on: the hidden state twice, what a step reads and what it writes; an
    LSTM's other state; and of a GRU that resets first, a gate and what it has reset."""
    return {"lstm": 3, "gru": 4}.get(one.cell, 2)


@dataclass(frozen=True)
class _Block:
    """Where a block and one of its threads are at work."""

    direction: Any
    first: Any
    tile: Any
    thread: Any
    step: Any
    old: Any


class _Kernels:
    """Writes the program."""

    def __init__(self, one: Recurrence, cut: Cut, ins: Sequence[Any], outs: Sequence[Any]) -> None:
        self._one, self._cut = one, cut
        self._in = one.operands([T.buffer_proxy(buffer) for buffer in ins])
        *self._out, self._kept = (T.buffer_proxy(buffer) for buffer in outs)
        self._wide_dtype = _WIDE.get(one.dtype, one.dtype)
        self._groups = math.ceil(one.batch / cut.rows)
        self._tiles = math.ceil(one.hidden / cut.columns)

    def written(self) -> Any:
        """The body, a statement."""
        with IRBuilder() as ib:
            with T.seq_scope():
                if self._cut.whole:
                    self._in_one()
                else:
                    self._step_by_step()
            return ib.get()

    def _in_one(self) -> None:
        one, cut = self._one, self._cut
        with _kernel(len(one.backwards) * self._groups, cut.threads) as (block, thread):
            partial = self._partial()
            direction, group = self._among(block, self._groups)
            first = group * cut.rows
            self._each_of_rows(direction, first, thread, self._begin)
            _wait()
            with T.serial(0, one.steps) as count:
                step, old = self._step(direction, count), count % 2
                for index in range(len(parts(one))):
                    with T.serial(0, self._tiles) as tile:
                        at = _Block(direction, first, tile, thread, step, old)
                        self._tile(index, at, partial)
            self._each_of_rows(direction, first, thread, self._end)

    def _step_by_step(self) -> None:
        one, cut = self._one, self._cut
        blocks = len(one.backwards) * self._groups
        with _kernel(blocks, STEP_THREADS) as (block, thread):
            direction, group = self._among(block, self._groups)
            self._each_of_rows(direction, group * cut.rows, thread, self._begin)
        with T.serial(0, one.steps) as count:
            for index in range(len(parts(one))):
                with _kernel(blocks * self._tiles, cut.threads) as (block, thread):
                    partial = self._partial()
                    row_block, tile = block // self._tiles, block % self._tiles
                    direction, group = self._among(row_block, self._groups)
                    step = self._step(direction, count)
                    at = _Block(direction, group * cut.rows, tile, thread, step, count % 2)
                    self._tile(index, at, partial)
        with _kernel(blocks, STEP_THREADS) as (block, thread):
            direction, group = self._among(block, self._groups)
            self._each_of_rows(direction, group * cut.rows, thread, self._end)

    def _partial(self) -> Any:
        """What threads hand to the one that has their column."""
        one, cut = self._one, self._cut
        most = max(len(part) for part in parts(one)) * cut.rows
        shape = [cut.splits, most, cut.columns]
        return T.buffer_proxy(T.decl_buffer(shape, self._wide_dtype, scope="shared"))

    def _among(self, block: Any, each: int) -> tuple[Any, Any]:
        """Direction, and the place among its blocks."""
        return (0, block) if len(self._one.backwards) == 1 else (block // each, block % each)

    def _step(self, direction: Any, count: Any) -> Any:
        one = self._one
        if len(one.backwards) == 1:
            return one.steps - 1 - count if one.backwards[0] else count
        return tirx.Select(direction == 1, one.steps - 1 - count, count)

    def _each_of_rows(self, direction: Any, first: Any, thread: Any, act: Any) -> None:
        """Do something at every element of the states of a block's rows."""
        one, cut = self._one, self._cut
        threads = cut.threads if cut.whole else STEP_THREADS
        elements = cut.rows * one.hidden
        with T.serial(0, math.ceil(elements / threads)) as turn:
            element = turn * threads + thread
            row = first + element // one.hidden
            inside = tirx.all(element < elements, row < one.batch)
            with T.If(inside), T.Then():
                act(direction, row, element % one.hidden)

    def _begin(self, direction: Any, row: Any, column: Any) -> None:
        self._kept[0, direction, row, column] = self._wide(self._in["h0"][direction, row, column])
        if self._one.cell == "lstm":
            self._kept[2, direction, row, column] = self._wide(
                self._in["c0"][direction, row, column]
            )

    def _end(self, direction: Any, row: Any, column: Any) -> None:
        places = (self._one.steps % 2, 2)
        for place, out in zip(places, self._out[1:], strict=False):
            out[direction, row, column] = self._narrow(self._kept[place, direction, row, column])

    def _tile(self, index: int, at: _Block, partial: Any) -> None:
        """One part of the gates at a block's columns."""
        one, cut = self._one, self._cut
        self._add_up(index, at, partial)
        _wait()
        elements = cut.rows * cut.columns
        with T.serial(0, math.ceil(elements / cut.threads)) as turn:
            element = turn * cut.threads + at.thread
            held, lane = element // cut.columns, element % cut.columns
            row, column = at.first + held, at.tile * cut.columns + lane
            inside = tirx.all(element < elements, row < one.batch, column < one.hidden)
            with T.If(inside), T.Then():
                self._cell(index, at, partial, held, lane)
        _wait()

    def _add_up(self, index: int, at: _Block, partial: Any) -> None:
        """A thread's share of the products of a column, all gates and rows."""
        one, cut = self._one, self._cut
        part = parts(one)[index]
        lane, split = at.thread % cut.columns, at.thread // cut.columns
        # Beyond the end something is computed all the same, which nobody reads.
        column = _within(at.tile * cut.columns + lane, one.hidden, cut.columns)
        rows = [_within(at.first + row, one.batch, cut.rows) for row in range(cut.rows)]
        sums = self._local(len(part) * cut.rows)
        for place in range(len(part) * cut.rows):
            sums[place] = tirx.const(0.0, self._wide_dtype)
        with T.serial(0, math.ceil(one.hidden / cut.splits)) as turn:
            k = turn * cut.splits + split
            source = 3 if index else at.old
            if one.hidden % cut.splits:
                # Products have to end: what would be beyond counts as zero.
                inside = k < one.hidden
                k = tirx.min(k, one.hidden - 1)
            for row, given in enumerate(rows):
                factor = self._kept[source, at.direction, given, k]
                if one.hidden % cut.splits:
                    factor = tirx.Select(inside, factor, tirx.const(0.0, self._wide_dtype))
                for place, gate in enumerate(part):
                    weight = self._in["weights"][at.direction, k, gate * one.hidden + column]
                    where = place * cut.rows + row
                    sums[where] = sums[where] + factor * self._wide(weight)
        for place in range(len(part) * cut.rows):
            partial[split, place, lane] = sums[place]

    def _cell(self, index: int, at: _Block, partial: Any, held: Any, lane: Any) -> None:
        """A cell's functions at one element of the state."""
        one, cut = self._one, self._cut
        part = parts(one)[index]
        row, column = at.first + held, at.tile * cut.columns + lane
        values = self._local(len(part))
        for place, gate in enumerate(part):
            values[place] = self._beginning(at, gate, row, column)
            with T.serial(0, cut.splits) as split:
                values[place] = values[place] + partial[split, place * cut.rows + held, lane]
        old = self._kept[at.old, at.direction, row, column]
        match one.cell:
            case "rnn_tanh":
                values[0] = tirx.tanh(values[0])
                self._keep(at, row, column, values[0])
            case "rnn_relu":
                values[0] = tirx.max(values[0], tirx.const(0.0, self._wide_dtype))
                self._keep(at, row, column, values[0])
            case "lstm":
                self._lstm(at, row, column, values)
            case "gru_reset_after":
                # Each function's value is stored before another is applied: TVM's time for nested
                # ones grows exponentially.
                values[0] = tirx.sigmoid(values[0])
                values[1] = tirx.sigmoid(values[1])
                given = self._taken(at, 2, row, column)
                values[2] = tirx.tanh(given + values[1] * values[2])
                self._keep(at, row, column, values[2] + values[0] * (old - values[2]))
            case "gru" if index == 0:
                self._kept[2, at.direction, row, column] = tirx.sigmoid(values[0])
                values[1] = tirx.sigmoid(values[1])
                self._kept[3, at.direction, row, column] = values[1] * old
            case "gru":
                values[0] = tirx.tanh(values[0])
                z = self._kept[2, at.direction, row, column]
                self._keep(at, row, column, values[0] + z * (old - values[0]))

    def _lstm(self, at: _Block, row: Any, column: Any, values: Any) -> None:
        for place in range(3):
            values[place] = tirx.sigmoid(values[place])
        values[3] = tirx.tanh(values[3])
        other = self._kept[2, at.direction, row, column]
        new = values[2] * other + values[0] * values[3]
        if self._one.has_lengths:
            new = tirx.Select(self._is_live(at, row), new, other)
        values[3] = new
        self._kept[2, at.direction, row, column] = values[3]
        values[3] = tirx.tanh(values[3])
        self._keep(at, row, column, values[1] * values[3])

    def _keep(self, at: _Block, row: Any, column: Any, new: Any) -> None:
        """Store what a step makes, but for sequences that have ended."""
        output = new
        if self._one.has_lengths:
            live = self._is_live(at, row)
            output = tirx.Select(live, new, tirx.const(0.0, self._wide_dtype))
            new = tirx.Select(live, new, self._kept[at.old, at.direction, row, column])
        self._out[0][at.step, at.direction, row, column] = self._narrow(output)
        self._kept[1 - at.old, at.direction, row, column] = new

    def _is_live(self, at: _Block, row: Any) -> Any:
        return self._in["lengths"][row] > tirx.Cast("int32", at.step)

    def _beginning(self, at: _Block, gate: int, row: Any, column: Any) -> Any:
        if self._one.has_bias and gate == 2:
            # What the input gives is added behind the reset.
            return self._wide(self._in["bias"][at.direction, column])
        return self._taken(at, gate, row, column)

    def _taken(self, at: _Block, gate: int, row: Any, column: Any) -> Any:
        one = self._one
        offset = (at.direction * one.gates + gate) * one.hidden
        return self._wide(self._in["taken"][at.step, row, offset + column])

    def _local(self, length: int) -> Any:
        return T.buffer_proxy(T.decl_buffer([length], self._wide_dtype, scope="local"))

    def _wide(self, value: Any) -> Any:
        same = self._wide_dtype == self._one.dtype
        return value if same else tirx.Cast(self._wide_dtype, value)

    def _narrow(self, value: Any) -> Any:
        same = self._wide_dtype == self._one.dtype
        return value if same else tirx.Cast(self._one.dtype, value)


@contextmanager
def _kernel(blocks: int, threads: int) -> Iterator[tuple[Any, Any]]:
    block, thread = te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x")
    extents = [
        T.attr(block, "thread_extent", blocks),
        T.attr(thread, "thread_extent", threads),
    ]
    with T.frame_scope(extents):
        yield block, thread


def _wait() -> None:
    """All threads of a block, with what they have written."""
    scope = [tvm.ir.StringImm("shared")]
    T.evaluate(tvm.ir.Call("tirx.tvm_storage_sync", scope, ret_ty="void"))


def _within(index: Any, extent: int, block: int) -> Any:
    return index if extent % block == 0 else tirx.min(index, extent - 1)
