"""Cases of the cuDNN backend: every pattern and dtype, first layers, groups, masks, odd extents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm.relax import op

from benchmarks.gpu.cases._case import CudaCase
from benchmarks.gpu.cases.cudnn._case import (
    EPILOGUES,
    RESIDUALS,
    RTOL,
    cudnn_case,
    dtype_of,
    rtol_of,
)
from benchmarks.gpu.cases.cudnn._graphs import (
    attention,
    chain,
    convolution,
    norm,
    pool,
    product,
)
from collage.testing.graphs import graph

TF32_RTOL = 3e-3
"""Operands are rounded to 11 bits."""


def cases() -> list[CudaCase]:
    """All cases."""
    return [
        *_convolutions(),
        *_products(),
        *_single(),
        *_attention(),
        *_chains(),
    ]


def _convolutions() -> list[CudaCase]:
    made = []
    for number, epilogue in enumerate((*EPILOGUES, *RESIDUALS)):
        name = "_".join(("conv2d", *epilogue))
        dtype = dtype_of(number)
        module = convolution((2, 32, 9, 7), (64, 3, 3), epilogue, dtype, padding=1)
        made.append(cudnn_case(name, dtype, "2x32x9x7-64x3x3", module, rtol_of(epilogue, dtype)))
    biased = ("bias", "relu")
    residual = ("bias", "add", "relu")
    shapes: list[tuple[str, str, Sequence[str], tvm.IRModule]] = []

    def add(
        what: str,
        dtype: str,
        epilogue: Sequence[str],
        data: Sequence[int],
        filters: Sequence[int],
        **attrs: Any,
    ) -> None:
        module = convolution(data, filters, epilogue, dtype, **attrs)
        shapes.append((what, dtype, epilogue, module))

    for dtype in RTOL:
        add("first-layer", dtype, biased, (1, 3, 56, 56), (64, 7, 7), strides=2, padding=3)
        add("depthwise", dtype, ("bias", "clip"), (2, 32, 14, 14), (32, 3, 3), padding=1, groups=32)
        add("groups", dtype, biased, (1, 64, 14, 14), (128, 3, 3), padding=1, groups=4)
        add("1x1", dtype, residual, (4, 64, 7, 7), (256, 1, 1))
    add("strided", "float16", biased, (2, 64, 15, 15), (64, 3, 3), strides=2, padding=1)
    add("dilated", "float16", biased, (1, 32, 20, 20), (32, 3, 3), padding=2, dilation=2)
    add("oblong", "bfloat16", ("bias",), (1, 16, 12, 20), (24, 1, 7), padding=(0, 3))
    uneven: dict[str, Any] = {"strides": 2, "padding": (0, 0, 1, 1)}
    add("uneven-padding", "float16", biased, (2, 32, 16, 16), (64, 3, 3), **uneven)
    add("uneven-padding", "float32", biased, (2, 32, 16, 16), (64, 3, 3), **uneven)
    add("odd-channels", "float16", biased, (2, 7, 9, 9), (13, 3, 3), padding=1)
    add("odd-channels", "float32", residual, (2, 7, 9, 9), (13, 3, 3), padding=1)
    for dtype in ("float16", "float32"):
        add("nchw", dtype, biased, (2, 32, 9, 7), (64, 3, 3), padding=1, channels_last=False)
    made += [
        cudnn_case("_".join(("conv2d", *epilogue)), dtype, what, module)
        for what, dtype, epilogue, module in shapes
    ]
    tf32 = convolution((2, 64, 14, 14), (64, 3, 3), biased, "float32", padding=1)
    half = convolution((2, 64, 14, 14), (64, 3, 3), residual, "float16", padding=1)
    return [
        *made,
        cudnn_case("conv2d_bias_relu", "float32", "tf32", tf32, TF32_RTOL, allow_tf32=True),
        cudnn_case("conv2d_bias_add_relu", "float16", "measured", half, algorithm="measured"),
        cudnn_case("conv2d_bias_add_relu", "float16", "no-workspace", half, workspace_limit=0),
    ]


def _products() -> list[CudaCase]:
    made = []
    # There is no pattern of a bare product with a bounded or leaky ReLU.
    without_residual = [e for e in EPILOGUES if e not in (("clip",), ("leakyrelu",))]
    for number, epilogue in enumerate(without_residual):
        name = "_".join(("matmul", *epilogue))
        dtype = ("float16", "bfloat16")[number % 2]
        module = product((2, 24, 64), (64, 96), epilogue, dtype)
        made.append(cudnn_case(name, dtype, "2x24x64x96", module, rtol_of(epilogue, dtype)))
    batched = product((6, 33, 40), (6, 40, 24), (), "float16", constant_right=False)
    tf32 = product((48, 64), (64, 96), ("bias",), "float32")
    odd = product((3, 65), (65, 97), ("bias", "relu"), "float16")
    return [
        *made,
        *(
            cudnn_case(
                f"matmul_bias_{what}",
                dtype,
                "33x64x96",
                product((33, 64), (64, 96), ("bias", what), dtype),
            )
            for what in ("clip", "leakyrelu")
            for dtype in ("float16", "bfloat16")
        ),
        cudnn_case("matmul_bias_relu", "float16", "3x65x97", odd),
        cudnn_case("matmul", "float16", "batched", batched),
        cudnn_case("matmul_bias", "float32", "tf32", tf32, TF32_RTOL, allow_tf32=True),
    ]


def _single() -> list[CudaCase]:
    made = []
    window: dict[str, Any] = {"pool_size": 3, "strides": 2, "padding": 1}
    for dtype in RTOL:
        for kind, attrs in (
            ("max_pool2d", window),
            ("avg_pool2d", {**window, "count_include_pad": True}),
            ("avg_pool2d", window),
        ):
            if dtype == "bfloat16":
                continue
            what = "2x15x13x32" + ("-include" if "count_include_pad" in attrs else "")
            made.append(cudnn_case(kind, dtype, what, pool(kind, (2, 15, 13, 32), dtype, **attrs)))
        softmax = graph([(2, 12, 17, 128)], lambda _, x: op.nn.softmax(x, axis=-1), dtype)
        made.append(cudnn_case("softmax", dtype, "2x12x17x128", softmax))
        for kind in ("layer_norm", "rms_norm"):
            made.append(cudnn_case(kind, dtype, "2x17x768", norm(kind, (2, 17, 768), dtype)))
    odd = graph([(3, 77)], lambda _, x: op.nn.softmax(x, axis=-1), "float16")
    two_axes = norm("layer_norm", (4, 8, 64), "float16", [1, 2])
    global_pool = pool("avg_pool2d", (2, 7, 7, 64), "float16", pool_size=7)
    ceil: dict[str, Any] = {"pool_size": 3, "strides": 2, "ceil_mode": True}
    return [
        *made,
        *(
            cudnn_case(kind, dtype, what, pool(kind, data, dtype, channels_last=last, **ceil))
            for kind in ("max_pool2d", "avg_pool2d")
            for what, last, data, dtype in (
                ("ceil", True, (2, 16, 14, 32), "float16"),
                ("ceil-odd", True, (1, 16, 14, 7), "float16"),
                ("ceil-nchw", False, (2, 6, 16, 14), "float32"),
            )
        ),
        cudnn_case("softmax", "float16", "3x77", odd),
        cudnn_case("avg_pool2d", "float16", "global", global_pool),
        cudnn_case("layer_norm", "float16", "two-axes", two_axes),
        cudnn_case("layer_norm", "float32", "5x100", norm("layer_norm", (5, 100), "float32")),
    ]


def _attention() -> list[CudaCase]:
    half, brain = "float16", "bfloat16"
    small = (2, 4, 64, 64, 64)
    made = []
    for number in range(8):
        biased, permuted, out = bool(number & 4), bool(number & 2), bool(number & 1)
        name = "attention" + "_bias" * biased + "_permuted" * permuted + "_out" * out
        dtype = (half, brain)[(number >> 1) % 2]
        bias = (2, 4, 64, 64) if biased else None
        module = attention(small, dtype, bias=bias, permuted=permuted, out=out)
        made.append(cudnn_case(name, dtype, "2x4x64x64", module))
    causal = attention((1, 12, 128, 128, 64), half, causal_mask="TopLeft")
    odd = (2, 3, 50, 77)
    bottom_right = attention((1, 4, 32, 96, 64), half, causal_mask="BottomRight")
    return [
        *made,
        cudnn_case("attention", half, "causal", causal),
        cudnn_case("attention", half, "bottom-right", bottom_right),
        cudnn_case("attention", brain, "odd", attention((3, 3, 77, 101, 40), brain, scale=0.3)),
        cudnn_case("attention", half, "wide", attention((1, 2, 128, 128, 128), half)),
        cudnn_case("attention_bias", half, "shared", attention(small, half, bias=(1, 1, 64, 64))),
        cudnn_case("attention_bias", half, "per-key", attention(small, half, bias=(2, 1, 1, 64))),
        cudnn_case("attention_bias", brain, "odd", attention((2, 3, 50, 77, 64), brain, bias=odd)),
    ]


def _chains() -> list[CudaCase]:
    made = []
    for number in range(16):
        masked, scaled = bool(number & 8), bool(number & 4)
        permuted, out = bool(number & 2), bool(number & 1)
        name = "attention_chain" + "_scaled" * scaled + "_masked" * masked
        name += "_permuted" * permuted + "_out" * out
        dtype = ("float16", "bfloat16")[(number >> 1) % 2]
        module = chain(
            (2, 4, 64, 64, 32),
            dtype,
            scaling=("multiply", "divide")[number % 2] if scaled else "",
            factor=(0.25, 5.0)[number % 2],
            mask=(2, 1, 64, 64) if masked else None,
            permuted=permuted,
            out=out,
        )
        made.append(cudnn_case(name, dtype, "2x4x64x32", module))
    return made
