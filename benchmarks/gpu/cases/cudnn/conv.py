"""Cases of cuDNN's convolutions of one and three spatial axes, of their transposes, and of pools.

Two-dimensional convolutions are among the backend's other cases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.gpu.cases._case import CudaCase
from benchmarks.gpu.cases.cudnn._case import (
    EPILOGUES,
    RESIDUALS,
    RTOL,
    cudnn_case,
    dtype_of,
    rtol_of,
)
from benchmarks.gpu.cases.cudnn._graphs import convolution, pool

SMALL: dict[str, tuple[Sequence[int], Sequence[int], dict[str, Any]]] = {
    "conv1d": ((2, 32, 37), (64, 3), {"padding": 1}),
    "conv3d": ((2, 32, 5, 9, 7), (64, 3, 3, 3), {"padding": 1}),
    "conv1d_transpose": ((2, 32, 19), (64, 4), {"padding": 1, "strides": 2}),
    "conv2d_transpose": ((2, 32, 9, 7), (64, 4, 4), {"padding": 1, "strides": 2}),
    "conv3d_transpose": ((2, 32, 5, 6, 7), (64, 2, 2, 2), {"strides": 2}),
}
"""A small problem of each operator: data, filters and attributes."""

BIASED = ("bias", "relu")


def cases() -> list[CudaCase]:
    """All cases."""
    return [*_every_epilogue(), *_one_axis(), *_three_axes(), *_transposed(), *_pools()]


def _case(
    name: str,
    what: str,
    dtype: str,
    epilogue: Sequence[str],
    data: Sequence[int],
    filters: Sequence[int],
    **attrs: Any,
) -> CudaCase:
    transposed = name.endswith("_transpose")
    module = convolution(data, filters, epilogue, dtype, transposed=transposed, **attrs)
    pattern = "_".join((name, *epilogue))
    return cudnn_case(pattern, dtype, what, module, rtol_of(epilogue, dtype))


def _every_epilogue() -> Iterator[CudaCase]:
    for first, (name, (data, filters, attrs)) in enumerate(SMALL.items()):
        epilogues = EPILOGUES if name.endswith("_transpose") else (*EPILOGUES, *RESIDUALS)
        for number, epilogue in enumerate(epilogues):
            yield _case(name, "small", dtype_of(first + number), epilogue, data, filters, **attrs)


def _one_axis() -> Iterator[CudaCase]:
    """What speech and time series networks have."""
    for dtype in RTOL:
        yield _case("conv1d", "waveform", dtype, ("gelu",), (1, 1, 4000), (64, 10), strides=5)
        yield _case(
            "conv1d", "positions", dtype, ("bias",), (1, 96, 50), (96, 16), padding=8, groups=8
        )
        yield _case(
            "conv1d", "depthwise", dtype, BIASED, (2, 48, 60), (48, 15), padding=7, groups=48
        )
        yield _case(
            "conv1d", "causal", dtype, BIASED, (2, 64, 80), (64, 3), padding=(8, 0), dilation=4
        )
    yield _case(
        "conv1d", "ncw", "float16", BIASED, (2, 32, 50), (64, 3), padding=1, channels_last=False
    )
    yield _case("conv1d", "odd", "float16", BIASED, (2, 7, 33), (13, 5), padding=2)


def _three_axes() -> Iterator[CudaCase]:
    """What networks of volumes and of videos have."""
    for dtype in RTOL:
        yield _case(
            "conv3d", "first-layer", dtype, BIASED, (1, 3, 8, 28, 28), (64, 3, 7, 7),
            strides=(1, 2, 2), padding=(1, 3, 3),
        )  # fmt: skip
        yield _case(
            "conv3d", "1x1", dtype, ("bias", "add", "relu"), (1, 64, 4, 7, 7), (128, 1, 1, 1)
        )
        yield _case(
            "conv3d", "depthwise", dtype, BIASED, (1, 32, 6, 10, 10), (32, 3, 3, 3),
            padding=1, groups=32,
        )  # fmt: skip
    half = "float16"
    volume = (1, 32, 7, 10, 12)
    yield _case("conv3d", "groups", half, BIASED, volume, (64, 3, 3, 3), padding=1, groups=4)
    yield _case("conv3d", "strided", half, BIASED, volume, (64, 3, 3, 3), padding=1, strides=2)
    yield _case("conv3d", "dilated", half, BIASED, volume, (32, 3, 3, 3), padding=2, dilation=2)
    yield _case("conv3d", "frames", half, ("bias",), volume, (32, 3, 1, 1), padding=(1, 0, 0))
    yield _case("conv3d", "uneven", half, BIASED, volume, (32, 2, 2, 2), padding=(1, 1, 1, 0, 0, 0))
    for dtype in (half, "float32"):
        yield _case(
            "conv3d", "ncdhw", dtype, BIASED, volume, (32, 3, 3, 3), padding=1, channels_last=False
        )


def _transposed() -> Iterator[CudaCase]:
    """What generators, decoders and vocoders have."""
    grown: dict[str, Any] = {"strides": 2, "padding": 1, "output_padding": 1}
    plane, double = (2, 32, 8, 6), {"strides": 2, "padding": 1}
    for dtype in RTOL:
        for name, data, filters, attrs in (
            ("conv2d_transpose", (1, 100, 1, 1), (256, 4, 4), {}),
            ("conv2d_transpose", plane, (3, 4, 4), double),
            ("conv1d_transpose", (1, 64, 40), (32, 16), {"strides": 8, "padding": 4}),
            ("conv3d_transpose", (1, 32, 4, 5, 6), (16, 3, 3, 3), grown),
        ):
            what = "x".join(map(str, (*data, filters[0])))
            yield _case(name, what, dtype, ("bias", "tanh"), data, filters, **attrs)
        yield _case("conv2d_transpose", "grown", dtype, BIASED, plane, (64, 3, 3), **grown)
        yield _case(
            "conv2d_transpose", "groups", dtype, BIASED, plane, (64, 4, 4), groups=4, **double
        )
        yield _case(
            "conv2d_transpose", "depthwise", dtype, (), plane, (32, 4, 4), groups=32, **double
        )
    half = "float16"
    yield _case(
        "conv2d_transpose", "dilated", half, BIASED, plane, (32, 3, 3), dilation=2, padding=2
    )
    yield _case("conv2d_transpose", "unit", half, BIASED, plane, (32, 3, 3), padding=1)
    yield _case(
        "conv2d_transpose", "uneven", half, (), plane, (32, 3, 3), padding=(0, 0, 1, 1), strides=2
    )
    yield _case("conv2d_transpose", "gaps", half, (), plane, (32, 2, 2), strides=3)
    yield _case(
        "conv1d_transpose", "groups", half, BIASED, (2, 32, 21), (64, 4), groups=4, **double
    )
    yield _case(
        "conv3d_transpose", "groups", half, (), (1, 16, 4, 5, 6), (32, 2, 2, 2), groups=2, strides=2
    )
    for dtype in (half, "float32"):
        yield _case(
            "conv2d_transpose", "nchw", dtype, (), plane, (64, 4, 4), channels_last=False, **double
        )


def _pools() -> Iterator[CudaCase]:
    window: dict[str, Any] = {"pool_size": 3, "strides": 2, "padding": 1}
    for rank, data in ((1, (2, 31, 32)), (3, (2, 7, 9, 8, 32))):
        for kind in ("max_pool", "avg_pool"):
            for dtype in ("float16", "float32"):
                name = f"{kind}{rank}d"
                yield cudnn_case(name, dtype, "window", pool(name, data, dtype, **window))
    include = pool("avg_pool3d", (2, 7, 9, 8, 32), "float16", count_include_pad=True, **window)
    yield cudnn_case("avg_pool3d", "float16", "include", include)
    whole = pool("avg_pool3d", (1, 4, 7, 7, 64), "float16", pool_size=(4, 7, 7))
    yield cudnn_case("avg_pool3d", "float16", "global", whole)
