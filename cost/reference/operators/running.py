"""Running extremes, where they were last, and sums of exponentials."""

from __future__ import annotations

import numpy as np
from tvm import relax

from collage.backends.relax.kept_whole.running import LOGSUMEXP, NAME, RunningExtreme
from collage.cost.reference.values import OperatorTable, Value


def _running(call: relax.Call, args: list[Value]) -> Value:
    (x,), one = args, RunningExtreme.of(call)
    if not x.size:
        return x, np.zeros(x.shape, "int64")
    values = (np.maximum if one.largest else np.minimum).accumulate(x, one.axis)
    row = np.arange(x.shape[one.axis]).reshape([-1, *[1] * (x.ndim - one.axis - 1)])
    met = (x == values) | (x != x)
    return values, np.maximum.accumulate(np.where(met, row, 0), one.axis)


def _logsumexp(call: relax.Call, args: list[Value]) -> Value:
    return np.logaddexp.accumulate(args[0], int(call.attrs["axis"]))


RUNNING: OperatorTable = {NAME: _running, LOGSUMEXP: _logsumexp}
