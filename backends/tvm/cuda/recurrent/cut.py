"""How the steps of LSTM, GRU and RNN are shared out among blocks and threads of a GPU."""

from __future__ import annotations

import math
from dataclasses import dataclass

from collage.backends.relax.recurrent import Recurrence

_BYTES = {"float16": 2, "bfloat16": 2, "float64": 8}

_CACHED_BYTES = 192 << 10
"""Weights of one direction that stay in the first cache of a multiprocessor, of 192 KiB on sm_80
and 256 KiB on sm_90. Reckoned, not tuned."""

_HELD = 96
_HOLDING_THREADS = 512
"""Where so many weights, or fewer, fall on each of so many threads, registers hold them: a thread
may have 128."""
_WHOLE_THREADS = 1024
STEP_THREADS = 256
"""Of a block that does one step."""
_STEP_COLUMNS = 16
_STEP_ROWS = 4
_BLOCKS = 264
"""Two for each multiprocessor of the largest devices: beyond, blocks take two rows each."""


@dataclass(frozen=True)
class Cut:
    """How the work is shared out.

    Attributes
    ----------
    whole : bool
        Whether one kernel runs all steps: its blocks keep their states to themselves, with each
        tile of columns written out.
    columns, splits : int
        Threads of a block side by side, and how many share the products of a column.
    rows : int
        Of the batch, in a block; at most as many as share a column.
    holds_weights : bool
        Whether threads keep their weights in registers from step to step, too.
    """

    whole: bool
    columns: int
    splits: int
    rows: int
    holds_weights: bool = False

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.columns * self.splits


def cut_of(recurrence: Recurrence) -> Cut:
    """How the steps of a layer are shared out.

    Examples
    --------
    >>> cut_of(Recurrence("gru_reset_after", "forward", 48, 1, 64, "float16", False))
    Cut(whole=True, columns=64, splits=8, rows=1, holds_weights=True)
    >>> cut_of(Recurrence("lstm", "forward", 48, 1, 128, "float16", False))
    Cut(whole=True, columns=128, splits=8, rows=1, holds_weights=False)
    >>> cut_of(Recurrence("lstm", "bidirectional", 48, 8, 512, "float16", False))
    Cut(whole=False, columns=16, splits=16, rows=4, holds_weights=False)
    """
    one = recurrence
    bytes_each = _BYTES.get(one.dtype, 4)
    if one.gates * one.hidden**2 * bytes_each > _CACHED_BYTES:
        rows = min(one.batch, _STEP_ROWS)
        return Cut(False, _STEP_COLUMNS, STEP_THREADS // _STEP_COLUMNS, rows)
    columns = min(32 * math.ceil(one.hidden / 32), 128)
    # A block's shared memory has room for the sums of one row of float64.
    pair = len(one.backwards) * one.batch > _BLOCKS and bytes_each <= 4
    rows = min(2, one.batch) if pair else 1
    splits = _HOLDING_THREADS // columns
    held = math.ceil(one.hidden / columns) * one.gates * math.ceil(one.hidden / splits)
    # A register has 4 bytes.
    if held * max(1, bytes_each // 4) <= _HELD:
        return Cut(True, columns, splits, rows, holds_weights=True)
    return Cut(True, columns, _WHOLE_THREADS // columns, rows)
