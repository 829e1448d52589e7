"""The step of a large prime factor, in loops: sums and differences of opposite values, weighed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from collage.backends.tvm.cpu.fourier.vectors import (
    Complex,
    Table,
    Vectors,
    named,
    named_pair,
    product,
)


class PrimeStep:
    """A step of a large prime.

    Parameters
    ----------
    radix, parts, stride : int
        The prime, and what is left on either side.
    begins : tuple of int
        Where the factors between its parts stand in the table, and where its roots of one do.
    table : Table
        Holds them.
    inverse : bool
        Whether angles turn forward.
    """

    _AT_ONCE = 2
    """Frequencies: what is loaded serves all of them."""

    _BLOCK = 16

    def __init__(
        self,
        radix: int,
        parts: int,
        stride: int,
        begins: tuple[int, int],
        table: Table,
        *,
        inverse: bool,
    ) -> None:
        self._radix, self._parts, self._stride = radix, parts, stride
        self._between, self._roots = begins
        self._table, self._inverse = table, inverse
        self._half = (radix - 1) // 2

    def step(self, source: Vectors, other: Vectors) -> None:
        """From one memory to the other.

        Parameters
        ----------
        source, other : Vectors
            As much of both as there are points.
        """
        lanes = source.lanes
        room = T.buffer_proxy(T.alloc_buffer((4 * (self._half + 1) * lanes,), "float32"))
        room = Vectors(room, lanes)
        with T.serial(0, self._parts) as p, T.serial(0, self._stride) as q, T.seq_scope():
            self._pairs(source, room, p, q)
            other.store(q + self._stride * self._radix * p, room.load(1))
            with T.serial(0, self._half // self._AT_ONCE) as group, T.seq_scope():
                at_once = range(self._AT_ONCE)
                self._frequencies(
                    room, other, [1 + group * self._AT_ONCE + i for i in at_once], p, q
                )
            left = self._half - self._half % self._AT_ONCE
            if left < self._half:
                last = [tirx.const(k, "int32") for k in range(left + 1, self._half + 1)]
                self._frequencies(room, other, last, p, q)

    def _pairs(self, source: Vectors, room: Vectors, p: Any, q: Any) -> None:
        """Sums and differences of opposite values, side by side; the first and the whole sum."""
        step = self._stride * self._parts
        first = source.load(q + self._stride * p)
        room.store(0, first)
        room.store(1, first)
        with T.serial(1, self._half + 1) as j, T.seq_scope():
            one = source.load(q + self._stride * p + step * j)
            two = source.load(q + self._stride * p + step * (self._radix - j))
            total = named_pair(one[0] + two[0], one[1] + two[1])
            room.store(2 * j, total)
            room.store(2 * j + 1, (one[0] - two[0], one[1] - two[1]))
            whole = room.load(1)
            room.store(1, (whole[0] + total[0], whole[1] + total[1]))

    def _frequencies(
        self, room: Vectors, other: Vectors, numbers: Sequence[Any], p: Any, q: Any
    ) -> None:
        lanes, radix = room.lanes, self._radix
        totals, parts = (
            Vectors(
                T.buffer_proxy(
                    T.alloc_buffer((4 * len(numbers) * lanes,), "float32", scope="local")
                ),
                lanes,
            )
            for _ in range(2)
        )
        at = T.buffer_proxy(T.alloc_buffer((len(numbers),), "int32", scope="local"))
        nothing = tirx.Broadcast(tirx.const(0.0, "float32"), lanes)
        for i in range(len(numbers)):
            at[i] = tirx.const(0, "int32")
            totals.store(2 * i, room.load(0))
            totals.store(2 * i + 1, (nothing, nothing))

        def block(first: Any, count: int) -> None:
            for i in range(2 * len(numbers)):
                parts.store(i, (nothing, nothing))
            with T.serial(0, count) as place, T.seq_scope():
                j = first + place
                total, gap = room.load(2 * j), room.load(2 * j + 1)
                for i, k in enumerate(numbers):
                    further = named(at[i] + k)
                    at[i] = tirx.Select(further >= radix, further - radix, further)
                    cosine, sine = self._table.load(self._roots + at[i])
                    self._add(parts, 2 * i, (total[0] * cosine, total[1] * cosine))
                    self._add(parts, 2 * i + 1, (gap[0] * sine, gap[1] * sine))
            for i in range(2 * len(numbers)):
                self._add(totals, i, parts.load(i))

        # A sum of sums loses fewer digits than one of all.
        with T.serial(0, self._half // self._BLOCK) as number, T.seq_scope():
            block(1 + number * self._BLOCK, self._BLOCK)
        if self._half % self._BLOCK:
            block(1 + self._half - self._half % self._BLOCK, self._half % self._BLOCK)
        for i, k in enumerate(numbers):
            (real, imaginary), (up, over) = totals.load(2 * i), totals.load(2 * i + 1)
            self._put(other, p, q, k, (real - over, imaginary + up))
            self._put(other, p, q, radix - k, (real + over, imaginary - up))

    def _add(self, sums: Vectors, number: int, value: Complex) -> None:
        real, imaginary = sums.load(number)
        sums.store(number, (real + value[0], imaginary + value[1]))

    def _put(self, other: Vectors, p: Any, q: Any, k: Any, value: Complex) -> None:
        turned = named_pair(*value)
        if self._parts > 1:
            turned = product(
                turned, self._table.load(self._between + p * (self._radix - 1) + k - 1)
            )
        other.store(q + self._stride * (self._radix * p + k), turned)
