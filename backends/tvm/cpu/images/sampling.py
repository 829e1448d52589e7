"""Images and volumes looked up at places: a block of places is found once for all channels."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, tirx
from tvm.script.ir_builder import tirx as T

from collage.backends.relax.kept_whole.sampling import BEYOND, METHODS, NAME, Sampling
from collage.backends.relax.static_shape import static_shape
from collage.backends.tvm.common.blocks import PARALLEL_MIN_WORK
from collage.backends.tvm.common.legalization import default_legalization
from collage.backends.tvm.common.programs import call_program
from collage.backends.tvm.cpu.not_numbers import is_none
from collage.backends.tvm.cpu.schedules import Machine

_VECTORS = 2
_KIND = "float32"


def legalize_sampling(
    builder: relax.BlockBuilder, call: relax.Call, machine: Machine
) -> relax.Expr:
    """Elements of an image or a volume at places that data give.

    Parameters
    ----------
    builder, call
        What makes the tensor program, and a call of our operator or of ``relax.image.grid_sample``.
    machine : Machine
        Threads share blocks of places.

    Returns
    -------
    relax.Expr
        A call of the tensor program; the default of other types than float32.
    """
    (x, grid), one = call.args, _how(call)
    shape, wanted = static_shape(x), static_shape(call)
    kinds = {str(each.ty.dtype) for each in (x, grid)}
    if one is None or kinds != {_KIND} or not math.prod((*shape, *wanted)):
        return default_legalization(builder, call)
    batch, channels, *extents = shape
    count = math.prod(wanted[2:])
    lanes = min(machine.lanes(_KIND) * _VECTORS, count)
    blocks = math.ceil(count / lanes)
    rank = len(extents)
    # Of a place one axis beside the other, or of an axis all places.
    beside = str(call.op.name) == NAME
    step, apart = (rank, 1) if beside else (1, count)
    work = math.prod(wanted) * 4
    shared = machine.num_threads > 1 and work >= PARALLEL_MIN_WORK and batch * blocks > 1

    def write(ins: Sequence[Any], outs: Sequence[Any]) -> None:
        (image, places), (out,) = ins, outs
        loop = T.parallel if shared else T.serial
        with loop(0, batch * blocks) as number, T.seq_scope():
            n = number // blocks
            # The last block begins where it fits, and finds some once more.
            begin = tirx.min(number % blocks * lanes, count - lanes)
            along = []

            def read(at: Any, lane: Any) -> Any:
                return places[at + (begin + lane) * step]

            for axis, extent in enumerate(extents):
                at = n * (count * rank) + (rank - 1 - axis) * apart
                on = _Lanes(lanes)
                place = on.named(_Row(functools.partial(read, at)))
                stride = math.prod(extents[axis + 1 :])
                along.append(
                    [
                        (on.index(kept, extent, stride), share)
                        for kept, share in one.taps(place, extent, on)
                    ]
                )
            with T.serial(0, channels) as channel:
                base = (n * channels + channel) * math.prod(extents)
                target = (n * channels + channel) * count + begin
                with T.vectorized(0, lanes) as lane:
                    out[target + lane] = _total(image, base, along, lane, one.beyond == "zeros")

    return call_program(builder, "grid_sample", [x, grid], [(wanted, _KIND)], write)


def _how(call: relax.Call) -> Sampling | None:
    attrs = call.attrs
    if str(call.op.name) == NAME:
        return Sampling.of(call)
    found = Sampling(str(attrs.method), str(attrs.padding_mode), bool(attrs.align_corners))
    known = found.method in METHODS and found.beyond in BEYOND and str(attrs.layout) == "NCHW"
    return found if known else None


def _total(image: Any, base: Any, along: list[list[Any]], lane: Any, guarded: bool) -> Any:
    """The taps of the axes from the first on, those of the last summed first."""

    def over(axis: int, offset: Any) -> Any:
        if axis == len(along):
            return image[offset]
        parts = []
        for index, share in along[axis]:
            part = over(axis + 1, offset + index[lane])
            if share is not None:
                weight = share[lane]
                part = part * weight
                if guarded:
                    # What stands in for what is outside may be infinite.
                    zero = tirx.const(0.0, _KIND)
                    part = tirx.Select(weight == zero, zero, part)
            parts.append(part)
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    return over(0, base)


@dataclass(frozen=True)
class _Row:
    """A number for each place of a block."""

    at: Callable[[Any], Any]

    def __getitem__(self, lane: Any) -> Any:
        return self.at(lane)

    def _with(self, other: Any, combine: Callable[[Any, Any], Any]) -> _Row:
        if isinstance(other, _Row):
            return _Row(lambda lane: combine(self[lane], other[lane]))
        return _Row(lambda lane: combine(self[lane], tirx.const(other, _KIND)))

    def __add__(self, other: Any) -> _Row:
        return self._with(other, operator.add)

    def __sub__(self, other: Any) -> _Row:
        return self._with(other, operator.sub)

    def __rsub__(self, other: Any) -> _Row:
        return self._with(other, lambda mine, given: given - mine)

    def __mul__(self, other: Any) -> _Row:
        return self._with(other, operator.mul)


class _Lanes:
    """What is done with the rows of a block; those with a name are in memory."""

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes

    def floor(self, x: _Row) -> _Row:
        return _Row(lambda lane: tirx.floor(x[lane]))

    def nearest(self, x: _Row) -> _Row:
        return _Row(lambda lane: tirx.nearbyint(x[lane]))

    def size(self, x: _Row) -> _Row:
        return _Row(lambda lane: tirx.abs(x[lane]))

    def clip(self, x: _Row, low: float, high: float) -> _Row:
        """What is no number becomes the lower limit."""
        ends = tirx.const(low, _KIND), tirx.const(high, _KIND)
        return _Row(lambda lane: tirx.min(tirx.max(x[lane], ends[0]), ends[1]))

    def where_equal(self, x: _Row, y: _Row, value: _Row) -> _Row:
        """What is no number stays that."""
        zero = tirx.const(0.0, _KIND)

        def chosen(lane: Any) -> Any:
            kept = tirx.any(x[lane] == y[lane], is_none(value[lane], _KIND))
            return tirx.Select(kept, value[lane], zero)

        return _Row(chosen)

    def named(self, x: _Row) -> _Row:
        return self._stored(x, _KIND)

    def index(self, x: _Row, extent: int, stride: int) -> _Row:
        """Whole numbers of an axis, in elements: never outside, whatever came in."""

        def whole(lane: Any) -> Any:
            kept = tirx.max(tirx.min(x[lane].astype("int32"), extent - 1), 0)
            return kept * stride

        return self._stored(_Row(whole), "int32")

    def _stored(self, x: _Row, kind: str) -> _Row:
        memory = T.buffer_proxy(T.alloc_buffer((self._lanes,), kind, scope="local"))
        with T.vectorized(0, self._lanes) as lane:
            memory[lane] = x[lane]
        return _Row(lambda lane: memory[lane])
