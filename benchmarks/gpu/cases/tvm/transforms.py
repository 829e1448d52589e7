"""Fourier transforms of lines, regions cut out of pictures, and operators whose constants say that
they take less: bands, regular places, rows that are all one number."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.cases._case import CudaCase
from collage.backends.relax.fourier import transform_matrix
from collage.testing.graphs import Emit, graph

RTOL = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 1e-2}

_REGIONS_RTOL = {**RTOL, "float32": 2e-5}
"""Of samples, whose places between pixels are numbers of float32, too: in pictures of a hundred
pixels they are off by up to 4e-6 of one, and neighbours differ by a few deviations of values."""

_MOVED_RTOL = 1e-9
"""Of values that are moved and not computed with: less than any of their digits."""

_TRANSFORMED = (
    (8, 4096, "float32"),
    (64, 512, "float16"),
    (3000, 400, "float32"),
    (16, 1025, "float32"),
    (64, 127, "bfloat16"),
)
"""One row of a block and several, factors that are written out and a large one."""

_CUT = (("NCHW", "float32"), ("NCHW", "float16"), ("NHWC", "bfloat16"))


def cases() -> list[CudaCase]:
    """Each in a type of its own."""
    return list(_cases())


def _cases() -> Iterator[CudaCase]:
    for rows, length, dtype in _TRANSFORMED:
        for kind in ("complex", "from_real", "to_real"):
            module = functools.partial(_transform, kind, rows, length, dtype)
            name = f"fourier-{kind}-{rows}x{length}-{dtype}"
            yield CudaCase(name, "tvm", "", module, rtol=RTOL[dtype])
    for dtype in RTOL:
        for side in ("left", "right"):
            module = _banded(side, dtype)
            yield CudaCase(f"banded-{side}-{dtype}", "tvm", "", module, rtol=RTOL[dtype])
        yield CudaCase(f"windows-{dtype}", "tvm", "", _windows(dtype), rtol=_MOVED_RTOL)
        for uniform in (True, False):
            name = f"put-{'alike' if uniform else 'in_order'}-{dtype}"
            yield CudaCase(name, "tvm", "", _put(dtype, uniform=uniform), rtol=_MOVED_RTOL)
    for layout, dtype in _CUT:
        module = _regions(layout, dtype)
        name = f"regions-{layout}-{dtype}"
        yield CudaCase(name, "tvm", "", module, rtol=_REGIONS_RTOL[dtype])


def _transform(kind: str, rows: int, length: int, dtype: str) -> tvm.IRModule:
    bins = length if kind == "complex" else length // 2 + 1
    back = kind == "to_real"
    whole = transform_matrix(length, bins, inverse=back, real_back=back)
    parts = whole[:, :1] if kind == "from_real" else whole
    matrix = parts.reshape(parts.shape[0] * parts.shape[1], -1).astype(dtype)

    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        return emit(op.matmul(x, relax.const(matrix, dtype)))

    return graph([(rows, len(matrix))], body, dtype)


def _regions(layout: str, dtype: str) -> tvm.IRModule:
    shape = (2, 48, 40, 50) if layout == "NCHW" else (2, 40, 50, 48)
    random = np.random.default_rng(0)
    corners = np.sort(random.integers(-20, 220, (70, 2, 2)), 1).reshape(70, 4)
    which = random.integers(0, 2, (70, 1))
    boxes = np.concatenate([which, corners], 1).astype(dtype)

    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        given = relax.const(boxes, dtype)
        found = [
            op.vision.roi_align(x, given, (7, 7), 0.25, ratio, aligned, layout, mode)
            for ratio, aligned, mode in ((2, False, "avg"), (-1, False, "max"), (-1, True, "avg"))
        ]
        if layout == "NCHW":
            found.append(op.vision.roi_pool(x, given, (7, 6), 0.25, layout))
        return relax.Tuple([emit(each) for each in found])

    return graph([shape], body, dtype)


def _banded(side: str, dtype: str) -> tvm.IRModule:
    """A picture's rows or columns, each result made of four neighbours."""
    rows = np.arange(100)
    matrix = np.zeros((100, 224))
    places = (rows * 220 // 99)[:, None] + np.arange(4)
    matrix[rows[:, None], places] = np.random.default_rng(0).random((100, 4))

    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        if side == "right":
            return emit(op.matmul(x, relax.const(matrix.T.copy(), dtype)))
        return emit(op.matmul(relax.const(matrix, dtype), x))

    return graph([(2, 3, 224, 224)], body, dtype)


def _windows(dtype: str) -> tvm.IRModule:
    """Every window of 3 by 3 of a padded picture, window by window."""
    steps = np.arange(28)[:, None] * 2 + np.arange(3)
    places = [steps[:, None, :, None], steps[None, :, None, :]]

    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        padded = emit(op.nn.pad(x, [1, 1, 1, 1, 0, 0]))
        constants = relax.Tuple([relax.const(place.astype("int64")) for place in places])
        return emit(op.permute_dims(emit(op.index_tensor(padded, constants))))

    return graph([(56, 56, 24)], body, dtype)


def _put(dtype: str, *, uniform: bool) -> tvm.IRModule:
    """Rows put at places that come again; of different ones the last stays."""
    random = np.random.default_rng(0)
    rows = random.integers(0, 1024, (300, 1))
    updates = np.full((300, 64), 2.5) if uniform else random.standard_normal((300, 64))

    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        return emit(
            op.scatter_nd(x, relax.const(rows), relax.const(updates.astype(dtype), dtype), "update")
        )

    return graph([(1024, 64)], body, dtype)
