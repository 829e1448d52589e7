"""Images and volumes looked up at places that data give."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from tvm import relax

from collage.backends.relax.kept_whole.sampling import NAME, Sampling
from collage.cost.reference.values import OperatorTable, Value


class _Arrays:
    """What is done with arrays."""

    def floor(self, x: Any) -> Any:
        return np.floor(x)

    def nearest(self, x: Any) -> Any:
        return np.round(x)

    def size(self, x: Any) -> Any:
        return np.abs(x)

    def clip(self, x: Any, low: float, high: float) -> Any:
        return np.clip(np.where(x == x, x, low), low, high)

    def where_equal(self, x: Any, y: Any, value: Any) -> Any:
        return np.where((x == y) | (value != value), value, 0.0)

    def named(self, x: Any) -> Any:
        return x


def _sampled(call: relax.Call, args: list[Value]) -> Value:
    (x, grid), one = args, Sampling.of(call)
    wide, extents = x.astype(np.float64), x.shape[2:]
    along = [
        one.taps(grid[..., len(extents) - 1 - axis].astype(np.float64), extent, _Arrays())
        for axis, extent in enumerate(extents)
    ]
    total = np.zeros((*x.shape[:2], *grid.shape[1:-1]))
    batch = np.arange(len(x)).reshape([-1, *[1] * len(extents)])
    for taps in itertools.product(*along):
        index = tuple(step.astype(np.int64) for step, _ in taps)
        part = np.moveaxis(wide[(batch, slice(None), *index)], -1, 1)
        for _, share in taps:
            if share is not None:
                # What stands in for what is outside may be infinite.
                weight = share[:, None]
                part = np.where(weight == 0, 0.0, part * weight)
        total = total + part
    return total.astype(x.dtype)


SAMPLING: OperatorTable = {NAME: _sampled}
