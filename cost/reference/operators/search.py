"""Places in sorted rows."""

from __future__ import annotations

from typing import Literal

import numpy as np
from tvm import relax

from collage.backends.relax.kept_whole.search import NAME
from collage.cost.reference.values import Array, OperatorTable, Value


def _search(call: relax.Call, args: list[Value]) -> Value:
    sequence, values = args
    side: Literal["left", "right"] = "right" if call.attrs["right"] else "left"
    rows = np.broadcast_to(sequence, (*values.shape[:-1], sequence.shape[-1]))
    found: Array = np.zeros(values.shape, str(call.attrs["dtype"]))
    for row in np.ndindex(values.shape[:-1]):
        found[row] = np.searchsorted(rows[row], values[row], side)
    return np.where(values != values, sequence.shape[-1], found)


SEARCH: OperatorTable = {NAME: _search}
