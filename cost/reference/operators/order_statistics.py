"""Medians and modes, with where they are."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from collage.backends.relax.kept_whole.order_statistics import MEDIAN, MODE, NAME
from collage.cost.reference.values import OperatorTable, Value


def _order_statistic(call: relax.Call, args: list[Value]) -> Value:
    """What is no number is sorted last, and equals nothing."""
    (x,), which, axis = args, str(call.attrs["which"]), int(call.attrs["axis"])
    order = np.argsort(x, axis, kind="stable")
    ordered = np.take_along_axis(x, order, axis)
    count = (x == x).sum(axis, keepdims=True)
    if which == MODE:
        ranks = _ends_of_longest_runs(ordered, axis)
    else:
        ranks = (np.maximum(count, 1) - 1) // 2
        if which == MEDIAN:
            ranks = np.where(count < x.shape[axis], count, ranks)
    places = np.take_along_axis(order, ranks, axis)
    return np.take_along_axis(x, places, axis), places


def _ends_of_longest_runs(ordered: Any, axis: int) -> Any:
    lines = np.moveaxis(ordered, axis, -1)
    ranks = np.broadcast_to(np.arange(lines.shape[-1]), lines.shape)
    fresh = np.ones(lines.shape, bool)
    fresh[..., 1:] = lines[..., 1:] != lines[..., :-1]
    begins = np.maximum.accumulate(np.where(fresh, ranks, 0), -1)
    return np.moveaxis((ranks - begins).argmax(-1)[..., np.newaxis], -1, axis)


ORDER_STATISTICS: OperatorTable = {NAME: _order_statistic}
