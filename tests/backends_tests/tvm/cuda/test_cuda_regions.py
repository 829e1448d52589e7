"""Regions of pictures on a GPU: their source, under a model of threads."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.cases.compiling import cuda_target
from collage.backends.contract import BuildContext
from collage.testing import graph
from tests.backends_tests.cuda_on_host import HostProgram
from tests.backends_tests.tvm.cuda.lowered import kernels, lower

pytestmark = pytest.mark.cuda

_PICTURES, _CHANNELS, _HEIGHT, _WIDTH = 2, 3, 17, 20
_ROWS, _COLUMNS, _SCALE = 3, 4, 0.5
_RTOL = {"float32": 2e-5, "float16": 1e-3, "bfloat16": 8e-3}


def boxes_drawn(count: int) -> np.ndarray:
    """Some stick out of the picture, lie outside of it, or are smaller than a pixel."""
    random = np.random.default_rng()
    corners = random.uniform(-6, 46, (count, 2, 2))
    corners[::4, 1] = corners[::4, 0] + random.uniform(0, 1, (len(corners[::4]), 2))
    corners[1] += 200.0
    low, high = corners.min(1), corners.max(1)
    which = random.integers(0, _PICTURES, (count, 1))
    # Quarters: the same places in every type.
    found = np.round(np.concatenate([which, low, high], 1) * 4) / 4
    return found.astype("float32")


def maxima(x: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """The definition, in float32 where places are chosen."""
    out = np.zeros((len(boxes), _CHANNELS, _ROWS, _COLUMNS))

    def spans(low: float, high: float, parts: int, extent: int) -> list[range]:
        first, last = (math.floor(v * _SCALE + 0.5) for v in (low, high))
        size = np.float32(max(last - first + 1, 1)) / np.float32(parts)
        return [
            range(
                min(max(math.floor(np.float32(i) * size) + first, 0), extent),
                min(max(math.ceil(np.float32(i + 1) * size) + first, 0), extent),
            )
            for i in range(parts)
        ]

    for n, (which, x1, y1, x2, y2) in enumerate(boxes):
        for i, rows in enumerate(spans(y1, y2, _ROWS, _HEIGHT)):
            for j, columns in enumerate(spans(x1, x2, _COLUMNS, _WIDTH)):
                if rows and columns:
                    part = x[int(which)][:, rows.start : rows.stop, columns.start : columns.stop]
                    out[n, :, i, j] = part.max((1, 2))
    return out


def places(low: float, high: float, parts: int, ratio: int, least: float) -> list[list[float]]:
    """Where samples lie columns an axis, part by part, in the picture's pixels."""
    side = max(high * _SCALE - low * _SCALE, least) / parts
    count = max(ratio or math.ceil(side), 0)
    return [
        [low * _SCALE + i * side + (k + 0.5) * side / count for k in range(count)]
        for i in range(parts)
    ]


def off_the_edges(boxes: np.ndarray, ratio: int, *, any_size: bool) -> np.ndarray:
    """Those without a sample where the picture ends: it counts or not, as places are rounded."""
    least = -math.inf if any_size else 1.0

    def clear(box: np.ndarray) -> bool:
        _, x1, y1, x2, y2 = map(float, box)
        axes = ((y1, y2, _ROWS, _HEIGHT), (x1, x2, _COLUMNS, _WIDTH))
        return all(
            min(abs(place + 1), abs(place - extent)) > 1e-3
            for low, high, parts, extent in axes
            for part in places(low, high, parts, ratio, least)
            for place in part
        )

    return boxes[[clear(box) for box in boxes]]


def samples(
    x: np.ndarray, boxes: np.ndarray, ratio: int, *, any_size: bool, mode: str
) -> np.ndarray:
    """The definition in float64."""
    out = np.zeros((len(boxes), _CHANNELS, _ROWS, _COLUMNS))

    def beside(place: float, extent: int) -> tuple[int, int, float]:
        inside = min(max(place, 0.0), extent - 1.0)
        first = math.floor(inside)
        return first, min(first + 1, extent - 1), inside - first

    for n, (which, *corners) in enumerate(boxes):
        x1, y1, x2, y2 = map(float, corners)
        least = -math.inf if any_size else 1.0
        rows = places(y1, y2, _ROWS, ratio, least)
        columns = places(x1, x2, _COLUMNS, ratio, least)
        for i, j in np.ndindex(_ROWS, _COLUMNS):
            found = []
            for y, z in itertools.product(rows[i], columns[j]):
                if y < -1 or z < -1 or y > _HEIGHT or z > _WIDTH:
                    found.append(np.zeros(_CHANNELS))
                    continue
                (top, down, dy), (left, right, dx) = beside(y, _HEIGHT), beside(z, _WIDTH)
                picture = x[int(which)]
                upper = picture[:, top, left] * (1 - dx) + picture[:, top, right] * dx
                lower_ = picture[:, down, left] * (1 - dx) + picture[:, down, right] * dx
                found.append(upper * (1 - dy) + lower_ * dy)
            if found:
                out[n, :, i, j] = np.mean(found, 0) if mode == "avg" else np.max(found, 0)
    return out


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_maxima_are_those_of_the_pixels_inside(
    dtype: str, tmp_path: Path, context: BuildContext
) -> None:
    x = np.random.default_rng().standard_normal((_PICTURES, _CHANNELS, _HEIGHT, _WIDTH))
    x, boxes = x.astype(dtype), boxes_drawn(25).astype(dtype)
    mod = graph(
        [x.shape, boxes.shape],
        lambda emit, x, b: emit(op.vision.roi_pool(x, b, (_ROWS, _COLUMNS), _SCALE, "NCHW")),
        dtype,
    )
    lowered = lower(mod, context)
    assert list(kernels(lowered)) == ["region_maxima"]
    (found,) = HostProgram(lowered, cuda_target(), tmp_path)(x, boxes)
    expected = maxima(x.astype("float64"), boxes.astype("float32"))
    np.testing.assert_array_equal(found.astype("float64"), expected)


@pytest.mark.parametrize(
    ("dtype", "ratio", "aligned", "mode", "layout"),
    [
        ("float32", 2, False, "avg", "NCHW"),
        ("float32", 0, True, "avg", "NHWC"),
        ("float32", 3, True, "max", "NCHW"),
        ("float16", 0, False, "max", "NHWC"),
        ("bfloat16", 2, True, "avg", "NCHW"),
    ],
)
def test_samples_are_taken_between_pixels(
    dtype: str,
    ratio: int,
    aligned: bool,
    mode: str,
    layout: str,
    tmp_path: Path,
    context: BuildContext,
) -> None:
    x = np.random.default_rng().standard_normal((_PICTURES, _CHANNELS, _HEIGHT, _WIDTH))
    x, boxes = x.astype(dtype), boxes_drawn(40)
    if aligned and mode == "max":
        # Of no samples there is no largest.
        boxes[:, 3:] += 1.0
    boxes = off_the_edges(boxes, ratio, any_size=aligned)[:25]
    given = x if layout == "NCHW" else np.ascontiguousarray(x.transpose(0, 2, 3, 1))

    def body(emit: Any, x: relax.Var, b: relax.Var) -> relax.Expr:
        size = (_ROWS, _COLUMNS)
        return emit(op.vision.roi_align(x, b, size, _SCALE, ratio or -1, aligned, layout, mode))

    boxes = boxes.astype(dtype)
    lowered = lower(graph([given.shape, boxes.shape], body, dtype), context)
    assert list(kernels(lowered)) == ["region_samples"]
    (found,) = HostProgram(lowered, cuda_target(), tmp_path)(given, boxes)
    if layout == "NHWC":
        found = found.transpose(0, 3, 1, 2)
    wide = x.astype("float64"), boxes.astype("float64")
    expected = samples(*wide, ratio, any_size=aligned, mode=mode)
    rtol = _RTOL[dtype]
    np.testing.assert_allclose(found.astype("float64"), expected, rtol, rtol)
