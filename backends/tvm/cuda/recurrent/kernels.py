"""The steps of LSTM, GRU and RNN on a GPU: all of them in one kernel, or a kernel a step.

A block computes some columns of the state for a few rows of the batch. Its threads share out the
products of a column: each adds up its part of them for all gates, and who has the column adds up
the parts and applies the cell's functions.

Where the weights fit into the cache of a multiprocessor, one block does all columns of its rows,
step after step, and waits for nobody: states stay in its shared memory, and where the weights fit
into its registers, too, they are read once. Larger ones are read by many blocks, and the end of a
kernel is what all of them wait for before the next step begins.

States are kept in float32 from step to step, whatever the type of the results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from collage.backends.relax.launch import kernel
from collage.backends.relax.recurrent import Recurrence
from collage.backends.relax.recurrent.blocking import parts
from collage.backends.tvm.cuda.recurrent.cell import Cell, wide_dtype
from collage.backends.tvm.cuda.recurrent.cut import STEP_THREADS, Cut
from collage.backends.tvm.cuda.recurrent.states import Element, States

_Act = Callable[[Element], None]


@dataclass(frozen=True)
class _Block:
    """Where a block and one of its threads are at work, and what the thread keeps from step to
    step: weights by tile, gate and turn, and what the input gives, by tile and gate."""

    states: States
    partial: Any
    direction: Any
    first: Any
    thread: Any
    count: Any
    weights: Any = None
    ahead: Any = None


class Kernels:
    """Writes the program.

    Parameters
    ----------
    one : Recurrence
        What is computed.
    cut : Cut
        How it is shared out.
    ins, outs : sequence of Buffer
        The operator's operands and results; behind these the states that kernels hand on, where
        there is one a step.
    """

    def __init__(self, one: Recurrence, cut: Cut, ins: Sequence[Any], outs: Sequence[Any]) -> None:
        self._one, self._cut = one, cut
        self._in = one.operands([T.buffer_proxy(buffer) for buffer in ins])
        self._out = [T.buffer_proxy(buffer) for buffer in outs]
        self._cell = Cell(one, self._in, self._out[0])
        self._groups = math.ceil(one.batch / cut.rows)
        self._tiles = math.ceil(one.hidden / cut.columns)
        self._turns = math.ceil(one.hidden / cut.splits)

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
        """All steps of a block that keeps its states, with the tiles written out one by one: what
        a thread has of each is in registers, which have numbers and no addresses."""
        one, cut = self._one, self._cut
        with kernel(len(one.backwards) * self._groups, cut.threads) as (block, thread):
            direction, group = self._among(block, self._groups)
            shared = self._shared([States.own_count(one), cut.rows, one.hidden])
            first = group * cut.rows
            states = States(shared, first, self._cell.local(self._tiles * 2))
            ahead = self._cell.local(self._tiles * one.gates)
            at = _Block(states, self._partial(), direction, first, thread, 0, ahead=ahead)
            if cut.holds_weights:
                at = replace(at, weights=self._held_weights(at))
            for tile in range(self._tiles):
                self._at_element(tile, at, self._begin)
                self._take(range(one.gates), tile, at)
            _wait()
            with T.serial(0, one.steps) as count:
                now = replace(at, count=count)
                for index in range(len(parts(one))):
                    for tile in range(self._tiles):
                        self._tile(index, tile, now)
            for tile in range(self._tiles):
                self._at_element(tile, replace(at, count=one.steps), self._end)

    def _step_by_step(self) -> None:
        one, cut = self._one, self._cut
        blocks = len(one.backwards) * self._groups
        states = States(self._out[-1])

        def at(block: Any, thread: Any, count: Any) -> _Block:
            direction, group = self._among(block, self._groups)
            return _Block(states, None, direction, group * cut.rows, thread, count)

        with kernel(blocks, STEP_THREADS) as (block, thread):
            self._each_of_rows(at(block, thread, 0), self._begin)
        with T.serial(0, one.steps) as count:
            for index in range(len(parts(one))):
                with kernel(blocks * self._tiles, cut.threads) as (block, thread):
                    here = at(block // self._tiles, thread, count)
                    partial = self._partial()
                    self._tile(index, block % self._tiles, replace(here, partial=partial))
        with kernel(blocks, STEP_THREADS) as (block, thread):
            self._each_of_rows(at(block, thread, one.steps), self._end)

    def _partial(self) -> Any:
        """What threads hand to the one that has their column."""
        one, cut = self._one, self._cut
        most = max(len(part) for part in parts(one)) * cut.rows
        return self._shared([cut.splits, most, cut.columns])

    def _shared(self, shape: list[int]) -> Any:
        return T.buffer_proxy(T.decl_buffer(shape, wide_dtype(self._one), scope="shared"))

    def _among(self, block: Any, each: int) -> tuple[Any, Any]:
        """Direction, and the place among its blocks."""
        return (0, block) if len(self._one.backwards) == 1 else (block // each, block % each)

    def _step(self, direction: Any, count: Any) -> Any:
        one = self._one
        if len(one.backwards) == 1:
            return one.steps - 1 - count if one.backwards[0] else count
        return tirx.Select(direction == 1, one.steps - 1 - count, count)

    def _each_of_rows(self, at: _Block, act: _Act) -> None:
        """Do something at every element of the states of a block's rows."""
        one, cut = self._one, self._cut
        elements = cut.rows * one.hidden
        with T.serial(0, math.ceil(elements / STEP_THREADS)) as turn:
            element = turn * STEP_THREADS + at.thread
            row, column = at.first + element // one.hidden, element % one.hidden
            inside = tirx.all(element < elements, row < one.batch)
            with T.If(inside), T.Then():
                act(Element(at.states, at.direction, row, column, 0, 0, turn))

    def _at_element(self, tile: int, at: _Block, act: _Act) -> None:
        """Do something at the element whose cell a thread does."""
        element, inside = self._element(tile, at)
        with T.If(inside), T.Then():
            act(element)

    def _begin(self, at: Element) -> None:
        place = at.direction, at.row, at.column
        at.states.keep_hidden(at, 0, self._cell.wide(self._in["h0"][place]))
        if "c0" in self._in:
            at.states.keep_other(at, self._cell.wide(self._in["c0"][place]))

    def _end(self, at: Element) -> None:
        at = replace(at, old=self._one.steps % 2)
        kept = (at.states.hidden, at.states.other)
        for state, out in zip(kept, self._out[1 : 1 + self._one.states], strict=False):
            out[at.direction, at.row, at.column] = self._cell.narrow(state(at))

    def _held_weights(self, at: _Block) -> Any:
        """A thread's share of the weights, in registers."""
        one = self._one
        held = self._cell.local(self._tiles * one.gates * self._turns)
        for tile in range(self._tiles):
            for gate in range(one.gates):
                for turn in range(self._turns):
                    where = (tile * one.gates + gate) * self._turns + turn
                    held[where] = self._weight(at, tile, gate, turn)
        return held

    def _weight(self, at: _Block, tile: Any, gate: int, turn: Any) -> Any:
        one, cut = self._one, self._cut
        # Beyond the end something is computed all the same, which nobody reads.
        column = _within(tile * cut.columns + at.thread % cut.columns, one.hidden, cut.columns)
        k = _within(self._k(at.thread, turn), one.hidden, cut.splits)
        return self._cell.wide(self._in["weights"][at.direction, k, gate * one.hidden + column])

    def _k(self, thread: Any, turn: Any) -> Any:
        return turn * self._cut.splits + thread // self._cut.columns

    def _tile(self, index: int, tile: Any, at: _Block) -> None:
        """One part of the gates at a block's columns."""
        part = parts(self._one)[index]
        self._add_up(index, tile, at)
        _wait()
        element, inside = self._element(tile, at)
        with T.If(inside), T.Then():
            if at.ahead is None:
                taken = [self._cell.taken(gate, element) for gate in part]
            else:
                taken = [at.ahead[self._ahead(tile, gate)] for gate in part]
            self._cell.write(index, element, taken, lambda place: self._total(place, at))
        if at.ahead is not None:
            # Long before it is used: memory answers while the products are added up.
            after = tirx.min(at.count + 1, self._one.steps - 1)
            self._take(part, tile, replace(at, count=after))
        _wait()

    def _element(self, tile: Any, at: _Block) -> tuple[Element, Any]:
        """The element whose cell a thread does, and whether it does one."""
        one, cut = self._one, self._cut
        row = at.first + at.thread // cut.columns
        column = tile * cut.columns + at.thread % cut.columns
        inside = tirx.all(at.thread < cut.rows * cut.columns, row < one.batch, column < one.hidden)
        step = self._step(at.direction, at.count)
        old = at.count % 2
        return Element(at.states, at.direction, row, column, step, old, tile), inside

    def _take(self, gates: Iterable[int], tile: int, at: _Block) -> None:
        """Have what the input gives a thread's element in its registers."""

        def act(element: Element) -> None:
            for gate in gates:
                at.ahead[self._ahead(tile, gate)] = self._cell.taken(gate, element)

        self._at_element(tile, at, act)

    def _ahead(self, tile: int, gate: int) -> int:
        return tile * self._one.gates + gate

    def _add_up(self, index: int, tile: Any, at: _Block) -> None:
        """A thread's share of the products of a column, all gates and rows."""
        one, cut = self._one, self._cut
        part = parts(one)[index]
        sums = self._cell.local(len(part) * cut.rows)
        for place in range(len(part) * cut.rows):
            sums[place] = tirx.const(0.0, wide_dtype(one))

        def add(turn: Any) -> None:
            factors = self._factors(index, at, self._k(at.thread, turn))
            for place, gate in enumerate(part):
                if at.weights is None:
                    weight = self._weight(at, tile, gate, turn)
                else:
                    weight = at.weights[(tile * one.gates + gate) * self._turns + turn]
                for row, factor in enumerate(factors):
                    where = place * cut.rows + row
                    sums[where] = sums[where] + factor * weight

        if at.weights is None:
            with T.serial(0, self._turns) as turn:
                add(turn)
        else:
            # Registers have no addresses: their numbers must be known.
            for turn in range(self._turns):
                add(turn)
        lane, split = at.thread % cut.columns, at.thread // cut.columns
        for place in range(len(part) * cut.rows):
            at.partial[split, place, lane] = sums[place]

    def _factors(self, index: int, at: _Block, k: Any) -> list[Any]:
        """The states that a weight is multiplied by, of all rows."""
        one, cut = self._one, self._cut
        old = at.count % 2
        within = _within(k, one.hidden, cut.splits)
        rows = [_within(at.first + row, one.batch, cut.rows) for row in range(cut.rows)]
        factors = [at.states.factor(index > 0, old, at.direction, row, within) for row in rows]
        if one.hidden % cut.splits:
            # Products have to end: what would be beyond counts as zero.
            zero = tirx.const(0.0, wide_dtype(one))
            factors = [tirx.Select(k < one.hidden, factor, zero) for factor in factors]
        return factors

    def _total(self, place: int, at: _Block) -> Any:
        """The product of an element, of all threads' shares; in pairs, for a short wait."""
        cut = self._cut
        held, lane = at.thread // cut.columns, at.thread % cut.columns
        where = place * cut.rows + held
        shares = [at.partial[split, where, lane] for split in range(cut.splits)]
        while len(shares) > 1:
            odd = shares[len(shares) // 2 * 2 :]
            shares = [a + b for a, b in zip(shares[::2], shares[1::2], strict=False)] + odd
        return shares[0]


def _wait() -> None:
    """All threads of a block, with what they have written."""
    scope = [tvm.ir.StringImm("shared")]
    T.evaluate(tvm.ir.Call("tirx.tvm_storage_sync", scope, ret_ty="void"))


def _within(index: Any, extent: int, block: int) -> Any:
    return index if extent % block == 0 else tirx.min(index, extent - 1)
