"""Sorts of longer lines on a GPU: a block sorts a line by merging, in the memory of its threads.

Of a line that is too long for one block, blocks keep the first of a chunk each where few are
wanted; another one sorts what they have kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from tvm import relax

from collage.backends.relax.static_shape import tensor_shape
from collage.backends.tvm.cuda.functions import Launch, call_kernels
from collage.backends.tvm.cuda.rows.lines import WARP, Lines
from collage.backends.tvm.cuda.sort_calls import SortCall

_ENTRY_BYTES = {
    **dict.fromkeys(["float16", "bfloat16"], 4),
    **dict.fromkeys(["bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float32"], 8),
    **dict.fromkeys(["int64", "float64"], 16),
}
"""Of an element's key with its place in a line that is not long."""

_ITEMS = (5, 9, 13, 17)
"""Entries of a thread, of which memory's banks have one each where their number is odd."""

_THREADS = 1024
_SHARED_BYTES = 200 << 10
_CHUNKS = (2048, 4096, 8192)
_MOST_KEPT = 9216
_FEWEST_LONG = 1 << 16
"""Elements of a line whose places need more than 16 bits."""


@dataclass(frozen=True)
class BlockSort:
    """How a block sorts some entries.

    Attributes
    ----------
    items : int
        Of a thread.
    threads : int
        Of a block.
    shared_bytes : int
        For all of them.
    """

    items: int
    threads: int
    shared_bytes: int

    @classmethod
    def of(cls, count: int, kind: str, length: int | None = None) -> Self | None:
        """None where a block has no room for them, or such numbers have no keys.

        Parameters
        ----------
        count : int
            Of the entries.
        kind : str
            The elements' dtype.
        length : int or None
            Of the line that they are from, where that is not all of it.

        Returns
        -------
        BlockSort or None
            With the fewest items that do.
        """
        size = entry_bytes(kind, count if length is None else length)
        if size is None:
            return None
        for items in _ITEMS if size < 16 else _ITEMS[:2]:
            threads = math.ceil(count / (items * WARP)) * WARP
            needed = threads * items * size
            if threads <= _THREADS and needed <= _SHARED_BYTES:
                return cls(items, threads, needed)
        return None


def entry_bytes(kind: str, length: int) -> int | None:
    """Of an element's key with its place in the line, or None where there are none.

    Parameters
    ----------
    kind : str
        The elements' dtype.
    length : int
        Of the line.

    Returns
    -------
    int or None
        A power of two.
    """
    size = _ENTRY_BYTES.get(kind)
    return 2 * size if size == 4 and length >= _FEWEST_LONG else size


def sorted_lines(builder: relax.BlockBuilder, call: relax.Call, x: relax.Expr) -> relax.Expr | None:
    """A sort of lines, or the first of it.

    Parameters
    ----------
    builder, call
        What takes the program, and a ``relax.sort``, ``relax.argsort`` or ``relax.topk``.
    x : relax.Expr
        The operand.

    Returns
    -------
    relax.Expr or None
        None where lines are too long, and where there is nothing to sort.
    """
    shape, kind = tensor_shape(call.args[0]), str(call.args[0].ty.dtype)
    if not shape or not math.prod(shape) or kind not in _ENTRY_BYTES:
        return None
    sort = SortCall.of(call)
    lines = Lines.along(shape, sort.axis)
    one = BlockSort.of(lines.length, kind)
    if one is not None:
        launch = Launch(
            lines.count,
            one.threads,
            f"collage::sort_line<{one.items}, {_flags(sort.descending, sort.values, sort.places)}>",
            (0, 1, len(sort.results)),
            (lines.length, lines.step, sort.taken),
            one.shared_bytes,
        )
        return call_kernels(builder, "sorted", [x], sort.results, [launch])
    return _chosen(builder, x, sort, lines, kind)


def _chosen(
    builder: relax.BlockBuilder, x: relax.Expr, sort: SortCall, lines: Lines, kind: str
) -> relax.Expr | None:
    """The first few of long lines, by those of chunks."""
    taken, results = sort.taken, sort.results
    size = entry_bytes(kind, lines.length)
    for chunk in _CHUNKS:
        chunks = math.ceil(lines.length / chunk)
        first = BlockSort.of(chunk, kind, lines.length)
        last = BlockSort.of(chunks * taken, kind, lines.length)
        if first is not None and last is not None and chunks * taken <= _MOST_KEPT:
            break
    else:
        return None
    if size is None or lines.length >= 1 << 31:
        return None
    is_long = _flags(lines.length >= _FEWEST_LONG)
    words = lines.count * chunks * taken * size // 4
    given = [*results, ((words,), "int32")]
    kept = len(given)
    launches = [
        Launch(
            lines.count * chunks,
            first.threads,
            f"collage::sort_chunk<{first.items}, {_flags(sort.descending)}, {is_long}>",
            (0, kept),
            (lines.length, lines.step, taken, chunk, chunks),
            first.shared_bytes,
        ),
        Launch(
            lines.count,
            last.threads,
            f"collage::sort_kept<{last.items}, {is_long}, {_flags(sort.values, sort.places)}>",
            (0, kept, 1, len(results)),
            (lines.length, lines.step, taken, chunks),
            last.shared_bytes,
        ),
    ]
    found = builder.emit(call_kernels(builder, "chosen", [x], given, launches))
    parts = [relax.TupleGetItem(found, place) for place in range(len(results))]
    return parts[0] if len(parts) == 1 else relax.Tuple(parts)


def _flags(*flags: bool) -> str:
    return ", ".join(str(flag).lower() for flag in flags)
