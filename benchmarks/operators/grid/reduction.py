"""Reductions over every kind of axes, scans, sorting and selection."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks.operators.case import OperatorCase, call

_AXES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((1, 512, 28, 28), (2, 3)),
    ((1, 64, 112, 112), (1,)),
    ((1, 64, 112, 112), (3,)),
    ((1, 64, 112, 112), (1, 2, 3)),
    ((4096, 1024), (0,)),
    ((4096, 1024), (1,)),
    ((1048576,), (0,)),
    ((16, 128, 768), (1,)),
    ((8, 64, 32, 32), (0, 2, 3)),
)


def cases() -> Iterator[OperatorCase]:
    for shape, axes in _AXES:
        for name, function in (("sum", torch.sum), ("mean", torch.mean), ("max", torch.amax)):
            bound = functools.partial(function, dim=axes)
            yield call("reduction", f"{name} {_label(shape, axes)}", bound, shape)
    for shape, axis in (((1, 21, 128, 128), 1), ((128, 50257), 1), ((4096, 1024), 0)):
        bound = functools.partial(torch.argmax, dim=axis)
        yield call("reduction", f"argmax {_label(shape, (axis,))}", bound, shape)
    others: tuple[tuple[str, Callable[..., Any]], ...] = (
        ("prod", functools.partial(torch.prod, dim=1)),
        ("var", functools.partial(torch.var, dim=1)),
        ("std", functools.partial(torch.std, dim=1)),
        ("norm", functools.partial(torch.linalg.vector_norm, dim=1)),
        ("logsumexp", functools.partial(torch.logsumexp, dim=1)),
        ("any", lambda x: (x > 0).any(1)),
    )
    for name, function in others:
        yield call("reduction", f"{name} {_label((1024, 1024), (1,))}", function, (1024, 1024))
    for shape, axis in (((128, 4096), 1), ((128, 4096), 0), ((1000000,), 0)):
        bound = functools.partial(torch.cumsum, dim=axis)
        yield call("scan", f"cumsum {_label(shape, (axis,))}", bound, shape)
    yield call(
        "scan", "cumprod 128x512, axes 1", functools.partial(torch.cumprod, dim=1), (128, 512)
    )
    for shape in ((64, 1024), (1, 8400)):
        yield call("sort", f"sort {_label(shape, (1,))}", _sorted, shape)
        yield call("sort", f"argsort {_label(shape, (1,))}", _order, shape)
    for shape, count in (((1, 50257), 50), ((1, 8400), 300), ((128, 1000), 5)):
        bound = functools.partial(_largest, count=count)
        name = f"{count} of {'x'.join(map(str, shape))}"
        yield call("topk", name, bound, shape, places_along=1)


def _sorted(x: Tensor) -> Tensor:
    return torch.sort(x, dim=1)[0]


def _order(x: Tensor) -> Tensor:
    return torch.argsort(x, dim=1)


def _largest(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    values, places = torch.topk(x, count, dim=1)
    return values, places


def _label(shape: tuple[int, ...], axes: tuple[int, ...]) -> str:
    return f"{'x'.join(map(str, shape))}, axes {','.join(map(str, axes))}"
