"""Scattered sums, products, extremes and means; rolls, flips, folds and triangles."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.operators.case import Ids, OperatorCase, call

_IMAGE = (1, 64, 56, 56)


def cases() -> Iterator[OperatorCase]:
    for how in ("sum", "amax", "mean", "prod"):
        for shape, count in (((1024, 64), 4096), ((200, 32), 1000)):
            function = functools.partial(_rows, how=how)
            name = f"{how} of {count} rows to {'x'.join(map(str, shape))}"
            yield call("scatter", name, function, shape, Ids((count,), shape[0]), (count, shape[1]))
        function = functools.partial(_elements, how=how)
        yield call(
            "scatter",
            f"{how} along rows of 128x512",
            function,
            (128, 512),
            Ids((128, 512), 512),
            (128, 512),
        )
    yield call(
        "scatter", "index_add 4096 to 1024x64", _added, (1024, 64), Ids((4096,), 1024), (4096, 64)
    )
    yield call("scatter", "index_copy 64 to 1024x64", _copied, (1024, 64), Ids((64,), 16), (64, 64))
    yield call("scatter", "index_fill 64 of 1024x64", _filled, (1024, 64), Ids((64,), 1024))
    yield call("scatter", "masked_scatter 128x768", _masked, (128, 768), (128, 768))
    yield call("gather", "take 4096 of 128x768", torch.take, (128, 768), Ids((4096,), 98304))
    yield call(
        "gather",
        "take along rows 128x768",
        functools.partial(torch.take_along_dim, dim=1),
        (128, 768),
        Ids((128, 100), 768),
    )
    yield call("gather", "rows and columns", _two, (128, 768), Ids((4096,), 128), Ids((4096,), 768))
    yield call(
        "slice",
        "roll three axes 8x28x28x64",
        lambda x: torch.roll(x, (1, -3, 5), (0, 1, 3)),
        (8, 28, 28, 64),
    )
    yield call("slice", "roll all 128x768", lambda x: torch.roll(x, 1000), (128, 768))
    yield call("slice", "flip last of 128x3072", lambda x: torch.flip(x, (1,)), (128, 3072))
    yield call("slice", "flip two of 1x64x56x56", lambda x: torch.flip(x, (2, 3)), _IMAGE)
    yield call("slice", "rot90 1x64x56x56", lambda x: torch.rot90(x, 1, (2, 3)), _IMAGE)
    yield call(
        "slice",
        "diagonal of 64x100x100",
        lambda x: torch.diagonal(x, 1, 1, 2) + 0.0,
        (64, 100, 100),
    )
    yield call("slice", "diagonal matrices 64x100", torch.diag_embed, (64, 100))
    yield call(
        "triangle", "upper of 32x100x130", functools.partial(torch.triu, diagonal=2), (32, 100, 130)
    )
    yield call(
        "triangle", "lower of 1024x1024", functools.partial(torch.tril, diagonal=-1), (1024, 1024)
    )
    yield call(
        "shuffle",
        "unfold 3x3 1x64x56x56",
        functools.partial(functional.unfold, kernel_size=3, padding=1),
        _IMAGE,
    )
    yield call(
        "shuffle",
        "unfold 2x2 apart 1x64x56x56",
        functools.partial(functional.unfold, kernel_size=2, stride=2),
        _IMAGE,
    )
    yield call(
        "shuffle",
        "fold 3x3 1x576x3136",
        functools.partial(functional.fold, output_size=(56, 56), kernel_size=3, padding=1),
        (1, 576, 3136),
    )
    yield call(
        "shuffle",
        "fold 2x2 apart 1x256x784",
        functools.partial(functional.fold, output_size=(56, 56), kernel_size=2, stride=2),
        (1, 256, 784),
    )
    yield call(
        "shuffle", "windows of a signal 1x16000", lambda x: x.unfold(1, 400, 160) + 0.0, (1, 16000)
    )
    yield call(
        "shuffle",
        "pixel unshuffle 3 of 1x16x57x57",
        lambda x: functional.pixel_unshuffle(x, 3),
        (1, 16, 57, 57),
    )
    yield call(
        "pad",
        "constant 3-D 1x16x8x28x28",
        lambda x: functional.pad(x, (1, 2, 2, 1, 1, 1), value=1.0),
        (1, 16, 8, 28, 28),
    )
    yield call(
        "pad",
        "reflect 1-D 1x64x1000",
        lambda x: functional.pad(x, (200, 200), mode="reflect"),
        (1, 64, 1000),
    )
    yield call(
        "pad",
        "replicate 3-D 1x16x8x28x28",
        lambda x: functional.pad(x, (1, 2, 2, 1, 1, 1), mode="replicate"),
        (1, 16, 8, 28, 28),
    )


def _rows(x: Tensor, ids: Tensor, source: Tensor, how: str) -> Tensor:
    index = ids.unsqueeze(1).expand(source.shape)
    return torch.scatter_reduce(x, 0, index, source, how)


def _elements(x: Tensor, ids: Tensor, source: Tensor, how: str) -> Tensor:
    return torch.scatter_reduce(x, 1, ids, source, how)


def _added(x: Tensor, ids: Tensor, source: Tensor) -> Tensor:
    return torch.index_add(x, 0, ids, source)


def _copied(x: Tensor, ids: Tensor, source: Tensor) -> Tensor:
    # Rows that repeat would leave it to chance which one stays.
    return torch.index_copy(x, 0, torch.arange(64, device=ids.device) * 16 + ids, source)


def _filled(x: Tensor, ids: Tensor) -> Tensor:
    return torch.index_fill(x, 0, ids, 2.5)


def _masked(x: Tensor, source: Tensor) -> Tensor:
    return torch.masked_scatter(x, x > 0, source)


def _two(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    return x[rows, columns]
