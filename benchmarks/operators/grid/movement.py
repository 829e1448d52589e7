"""Operators that move data: nothing but memory counts."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.operators.case import Call, Ids, OperatorCase, call

_Shape = tuple[int, ...]
_IMAGE: _Shape = (1, 64, 112, 112)
_TRANSPOSES: tuple[tuple[_Shape, _Shape], ...] = (
    ((1024, 1024), (1, 0)),
    ((1, 128, 12, 64), (0, 2, 1, 3)),
    ((1, 12, 64, 128), (0, 1, 3, 2)),
    (_IMAGE, (0, 2, 3, 1)),
    ((1, 112, 112, 64), (0, 3, 1, 2)),
    ((1, 8, 7, 8, 7, 96), (0, 1, 3, 2, 4, 5)),
    ((3, 5, 7, 11, 13), (4, 2, 0, 3, 1)),
)
_CONCATS: tuple[tuple[_Shape, int], ...] = ((_IMAGE, 1), ((1, 128, 768), -1), ((8, 64, 56), 0))
_SPLITS: tuple[tuple[_Shape, int], ...] = ((_IMAGE, 2), ((128, 2304), -1))


def cases() -> Iterator[OperatorCase]:
    for shape, axes in _TRANSPOSES:
        function = functools.partial(_permuted, axes=axes)
        yield call("transpose", f"{'x'.join(map(str, shape))} by {axes}", function, shape)
    for mode in ("constant", "reflect", "replicate"):
        function = functools.partial(functional.pad, pad=(1, 1, 1, 1), mode=mode)
        yield call("pad", f"{mode} 1x64x112x112", function, _IMAGE)
    yield call("pad", "circular 1x64x56x56", _circular, (1, 64, 56, 56))
    for shape, axis in _CONCATS:
        function = functools.partial(_joined, axis=axis)
        yield call("concat", f"axis {axis} of {'x'.join(map(str, shape))}", function, shape, shape)
    yield call(
        "concat", "stack 128x768", lambda a, b: torch.stack([a, b], 1), (128, 768), (128, 768)
    )
    for shape, axis in _SPLITS:
        function = functools.partial(_parts, axis=axis)
        yield call("split", f"axis {axis} of {'x'.join(map(str, shape))}", function, shape)
    yield call("slice", "every second of 1x64x112x112", lambda x: x[:, :, ::2, ::2] + 0.0, _IMAGE)
    yield call("slice", "patches 1x3x224x224", _focus, (1, 3, 224, 224))
    yield call("slice", "flip 1x64x112x112", lambda x: torch.flip(x, (3,)), _IMAGE)
    yield call(
        "slice", "roll 1x56x56x96", lambda x: torch.roll(x, (-3, -3), (1, 2)), (1, 56, 56, 96)
    )
    for words, size, length in ((30522, 768, 128), (1000, 64, 16)):
        make = functools.partial(nn.Embedding, words, size)
        name = f"embedding {words}x{size} for {length}"
        yield OperatorCase("gather", name, make, (Ids((1, length), words),))
    yield OperatorCase("gather", "sum of 8 rows 10000x64 for 64", _table, (Ids((64, 8), 10000),))
    for axis in (0, 1, 2):
        selected = functools.partial(_index_select, axis=axis)
        name = f"index_select axis {axis} of 64x128x96"
        yield call("gather", name, selected, (64, 128, 96), Ids((48,), 64))
    yield call("gather", "gather axis 1 of 256x1024", _gathered, (256, 1024), Ids((256, 64), 1024))
    yield call(
        "scatter", "rows of 1024x256", _scattered, (1024, 256), Ids((64, 256), 1024), (64, 256)
    )
    yield call(
        "scatter", "add to rows of 1024x256", _added, (1024, 256), Ids((64, 256), 1024), (64, 256)
    )
    yield call("scatter", "index_put 512x128", _put, (512, 128), Ids((64,), 512), (64, 128))
    yield call(
        "one_hot", "128 of 1000", lambda i: functional.one_hot(i, 1000).float(), Ids((128,), 1000)
    )
    yield call(
        "shuffle",
        "pixel shuffle 2 of 1x256x56x56",
        lambda x: functional.pixel_shuffle(x, 2),
        (1, 256, 56, 56),
    )
    yield call(
        "shuffle",
        "pixel unshuffle 2 of 1x64x112x112",
        lambda x: functional.pixel_unshuffle(x, 2),
        _IMAGE,
    )
    yield call("shuffle", "channels of 1x232x14x14", _channels, (1, 232, 14, 14))
    yield call("shuffle", "windows of 1x56x56x96", _windows, (1, 56, 56, 96))
    yield call(
        "broadcast",
        "expand 64x1x1 to 64x112x112",
        lambda x: x.expand(64, 112, 112) + 0.0,
        (64, 1, 1),
    )
    yield call("broadcast", "repeat 1x64x56x56", lambda x: x.repeat(1, 2, 1, 1), (1, 64, 56, 56))
    yield call(
        "broadcast",
        "repeat_interleave 1x8x128x64",
        lambda x: x.repeat_interleave(4, 1),
        (1, 8, 128, 64),
    )
    yield call("copy", "64 MiB", torch.clone, (4096, 4096))
    yield call("triangle", "lower of 12x128x128", torch.tril, (12, 128, 128))
    yield call("grid_sample", "1x64x56x56", _sampled, (1, 64, 56, 56), (1, 56, 56, 2))


def _permuted(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    return x.permute(axes).contiguous()


def _circular(x: Tensor) -> Tensor:
    return functional.pad(x, (1, 1, 1, 1), mode="circular")


def _joined(a: Tensor, b: Tensor, axis: int) -> Tensor:
    return torch.cat([a, b], axis)


def _parts(x: Tensor, axis: int) -> tuple[Tensor, ...]:
    return tuple(part.contiguous() for part in x.chunk(2, axis))


def _focus(x: Tensor) -> Tensor:
    return torch.cat([x[..., i::2, j::2] for i in range(2) for j in range(2)], 1)


def _table() -> Call:
    # Drawn when the case is built, behind the seed.
    return Call(_bag, (torch.randn(10000, 64),))


def _bag(ids: Tensor, table: Tensor) -> Tensor:
    return functional.embedding(ids, table).sum(1)


def _index_select(x: Tensor, ids: Tensor, axis: int) -> Tensor:
    return torch.index_select(x, axis, ids)


def _gathered(x: Tensor, ids: Tensor) -> Tensor:
    return torch.gather(x, 1, ids)


def _scattered(x: Tensor, ids: Tensor, values: Tensor) -> Tensor:
    # Rows that repeat would leave it to chance which one stays.
    rows = (torch.arange(64, device=ids.device).unsqueeze(1) * 16).expand(64, 256) + ids % 16
    return torch.scatter(x, 0, rows, values)


def _added(x: Tensor, ids: Tensor, values: Tensor) -> Tensor:
    return torch.scatter_add(x, 0, ids, values)


def _put(x: Tensor, ids: Tensor, values: Tensor) -> Tensor:
    rows = torch.arange(64, device=ids.device) * 8 + ids % 8
    return torch.index_put(x, (rows,), values)


def _channels(x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def _windows(x: Tensor) -> Tensor:
    n, h, w, c = x.shape
    return x.view(n, h // 7, 7, w // 7, 7, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, c)


def _sampled(x: Tensor, grid: Tensor) -> Tensor:
    return functional.grid_sample(x, grid.tanh(), align_corners=False)
