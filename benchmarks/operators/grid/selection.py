"""Running extremes, orders of rows of all lengths, places in sorted sequences, counts."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.operators.case import Call, Ids, OperatorCase, call

_ROWS: tuple[tuple[tuple[int, ...], int], ...] = (
    ((64, 1000), 1),
    ((1000, 64), 0),
    ((1, 8400), 1),
    ((512, 16), 1),
    ((8, 128, 128), 1),
)


def cases() -> Iterator[OperatorCase]:
    for shape, axis in _ROWS:
        name = f"{'x'.join(map(str, shape))}, axis {axis}"
        yield call("running", f"cummax {name}", functools.partial(torch.cummax, dim=axis), shape)
        yield call(
            "order",
            f"median {name}",
            functools.partial(torch.median, dim=axis),
            shape,
            places_along=axis,
        )
        smallest = functools.partial(torch.kthvalue, k=shape[axis] // 3, dim=axis)
        yield call("order", f"kthvalue {name}", smallest, shape, places_along=axis)
        yield call(
            "order",
            f"sort {name}",
            functools.partial(torch.sort, dim=axis),
            shape,
            places_along=axis,
        )
        few = functools.partial(torch.topk, k=max(2, shape[axis] // 8), dim=axis)
        yield call("order", f"an eighth of {name}", few, shape, places_along=axis)
    yield call(
        "running", "cummax 1x100000, axis 1", functools.partial(torch.cummax, dim=1), (1, 100000)
    )
    yield call("running", "cummin 64x33, axis 1", functools.partial(torch.cummin, dim=1), (64, 33))
    for shape, axis in _ROWS[:2]:
        name = f"logcumsumexp {'x'.join(map(str, shape))}, axis {axis}"
        yield call("running", name, functools.partial(torch.logcumsumexp, dim=axis), shape)
    yield call("running", "trapezoid 64x1000", torch.trapezoid, (64, 1000))
    yield call("running", "cumulative trapezoid 64x1000", torch.cumulative_trapezoid, (64, 1000))
    yield call(
        "order", "quantile 64x1000", functools.partial(torch.quantile, q=0.3, dim=1), (64, 1000)
    )
    yield call(
        "order",
        "nanmedian 64x1000",
        functools.partial(torch.nanmedian, dim=1),
        (64, 1000),
        places_along=1,
    )
    yield call("order", "mode 64x1000", _mode, Ids((64, 1000), 50))
    for bounds, shape in ((100, (64, 1000)), (1000, (64, 1000)), (16, (1, 10000))):
        make = functools.partial(Call, torch.bucketize, (torch.linspace(-2.0, 2.0, bounds),))
        name = f"bucketize {'x'.join(map(str, shape))} in {bounds}"
        yield OperatorCase("search", name, make, (shape,))
    yield call("search", "searchsorted 64 rows of 200", _searched, (64, 200), (64, 100))
    yield call(
        "count",
        "histc 100 of 100000",
        functools.partial(torch.histc, bins=100, min=-3, max=3),
        (100000,),
    )
    yield call("count", "bincount 100000 in 50", _counted, Ids((100000,), 50))


def _mode(x: Tensor) -> Tensor:
    # Of places PyTorch gives any.
    return torch.mode(x, 1)[0]


def _searched(rows: Tensor, values: Tensor) -> Tensor:
    return torch.searchsorted(rows.cumsum(1).abs().cumsum(1), values)


def _counted(x: Tensor) -> Tensor:
    return torch.bincount(x, minlength=50)
