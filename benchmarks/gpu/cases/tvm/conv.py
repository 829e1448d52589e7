"""Cases of TVM's own convolutions of one and three spatial axes, and of transposed ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.gpu.cases._case import CudaCase
from benchmarks.gpu.cases.cudnn._graphs import convolution

RTOL = {"float16": 3e-3, "bfloat16": 2e-2, "float32": 1e-5}

BIASED = ("bias", "relu")
DOUBLE: dict[str, Any] = {"transposed": True, "strides": 2, "padding": 1}

PROBLEMS: dict[str, tuple[Sequence[int], Sequence[int], dict[str, Any]]] = {
    "conv1d": ((2, 32, 37), (48, 3), {"padding": 1}),
    "conv1d_causal": ((1, 24, 50), (40, 3), {"padding": (8, 0), "dilation": 4}),
    "conv1d_depthwise": ((1, 48, 60), (48, 15), {"padding": 7, "groups": 48}),
    "conv1d_waveform": ((1, 1, 400), (64, 10), {"strides": 5}),
    "conv3d": ((1, 16, 5, 9, 7), (24, 3, 3, 3), {"padding": 1}),
    "conv3d_stem": ((1, 3, 4, 14, 14), (16, 3, 7, 7), {"strides": (1, 2, 2), "padding": (1, 3, 3)}),
    "conv3d_depthwise": ((1, 16, 5, 6, 7), (16, 3, 3, 3), {"padding": 1, "groups": 16}),
    "conv3d_first": ((1, 16, 4, 6, 7), (24, 3, 3, 3), {"padding": 1, "channels_last": False}),
    "conv1d_transpose": ((1, 32, 20), (16, 16), {**DOUBLE, "strides": 8, "padding": 4}),
    "conv2d_transpose": ((1, 64, 4, 3), (8, 4, 4), DOUBLE),
    "conv2d_transpose_deep": ((1, 128, 3, 2), (8, 3, 3), {**DOUBLE, "output_padding": 1}),
    "conv2d_transpose_grouped": ((1, 32, 4, 5), (16, 4, 4), {**DOUBLE, "groups": 4}),
    "conv2d_transpose_first": ((1, 32, 4, 5), (8, 4, 4), {**DOUBLE, "channels_last": False}),
    "conv1d_grouped": ((1, 48, 50), (48, 16), {"padding": 8, "groups": 3}),
    "conv2d_grouped_strided": (
        (1, 64, 9, 9),
        (64, 3, 3),
        {"padding": 1, "groups": 8, "strides": 2},
    ),
    # Few tiles with long sums, which are cut in parts: by windows' places, by channels, by both.
    "conv2d_in_parts": ((1, 256, 7, 6), (40, 3, 3), {"padding": 1}),
    "conv2d_in_parts_single": ((1, 2048, 7, 7), (24, 1, 1), {}),
    # Results that no block of threads divides.
    "conv2d_in_parts_uneven": ((1, 256, 7, 5), (30, 3, 3), {"padding": 1}),
    "conv3d_in_parts": ((1, 40, 3, 5, 4), (24, 3, 5, 5), {"padding": (1, 2, 2)}),
    # Few columns.
    "conv2d_two_channels": ((1, 24, 9, 8), (2, 3, 3), {"padding": 1}),
    "conv3d_narrow": ((1, 16, 3, 5, 6), (5, 3, 3, 3), {"padding": 1}),
    # All phases read the same places.
    "conv2d_transpose_shuffle": ((1, 16, 6, 5), (24, 2, 2), {"transposed": True, "strides": 2}),
    "conv3d_transpose": ((1, 16, 3, 4, 5), (8, 2, 2, 2), {"transposed": True, "strides": 2}),
}
"""Data, filters and attributes."""


def cases() -> list[CudaCase]:
    """All cases."""
    return [
        CudaCase(
            f"{name}-{dtype}",
            "tvm",
            "",
            convolution(data, filters, BIASED, dtype, **attrs),
            rtol=RTOL[dtype],
        )
        for name, (data, filters, attrs) in PROBLEMS.items()
        for dtype in RTOL
    ]
