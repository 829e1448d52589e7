"""Cases of the cuBLAS backend: every pattern and dtype, odd sizes, batches, transposed operands."""

from __future__ import annotations

from typing import Any

import tvm

from benchmarks.gpu.cases._case import CudaCase
from benchmarks.gpu.cases.cublas._products import Chain, convolution, dense, gram, product

RTOL = {"float16": 4e-3, "bfloat16": 1.6e-2, "float32": 1e-5}
"""The result is rounded once, to 11, 8 and 24 bits; float32 adds up in another order."""
TF32_RTOL = 2e-3
"""Operands rounded to 11 bits, errors averaged out over the sum."""
APPROXIMATE_GELU_RTOL = 4e-3
"""The tanh approximation is off by up to 5e-4, besides the rounding."""


HEADS_FIRST = [0, 2, 1, 3]
KEYS = [0, 2, 3, 1]
"""``permute_dims`` of attention: (batch, tokens, heads, size) to (batch, heads, size, tokens)."""


def cases() -> list[CudaCase]:
    """All cases."""
    made = [
        *_matmul_epilogues(),
        *_convolution_epilogues(),
        *_permuted(),
        *_products(),
        *_dense_shapes(),
        *_weights_by_columns(),
    ]
    return made


def _case(
    pattern: str,
    dtype: str,
    shape: str,
    module: tvm.IRModule,
    rtol: float | None = None,
    **options: Any,
) -> CudaCase:
    name = f"{pattern}-{dtype}-{shape}"
    return CudaCase(name, "cublas", f"cublas.{pattern}", module, options, rtol or RTOL[dtype])


def _chains(bias: tuple[int, ...]) -> list[Chain]:
    activations = ("", "relu", "gelu", "gelu_tanh")
    return [
        *(Chain(None, False, activation) for activation in activations),
        *(Chain(bias, False, activation) for activation in activations),
        *(Chain(b, True, activation) for b in (None, bias) for activation in ("", "relu")),
    ]


def _dtypes(number: int) -> str:
    return ("float16", "bfloat16", "float32")[number % 3]


def _options(chain: Chain, dtype: str) -> dict[str, Any]:
    if chain.activation != "gelu":
        return {}
    return {"approximate_gelu": True, "rtol": max(APPROXIMATE_GELU_RTOL, RTOL[dtype])}


def _matmul_epilogues() -> list[CudaCase]:
    made = []
    for number, chain in enumerate(_chains(bias=(96,))):
        for dtype in dict.fromkeys([_dtypes(number), "float16"]):
            module = dense((2, 17, 64), 96, chain, dtype, seed=number)
            name = f"matmul{chain.suffix}"
            made.append(_case(name, dtype, "2x17x64x96", module, **_options(chain, dtype)))
    return made


def _convolution_epilogues() -> list[CudaCase]:
    made = []
    for number, chain in enumerate(_chains(bias=(1, 1, 1, 48))):
        dtype = _dtypes(number + 1)
        module = convolution((2, 7, 5, 32), 48, chain, dtype, seed=100 + number)
        name = f"conv2d_1x1{chain.suffix}"
        made.append(_case(name, dtype, "2x7x5x32x48", module, **_options(chain, dtype)))
    small = convolution((1, 3, 3, 5), 7, Chain((7,)), "float16", seed=120)
    made.append(_case("conv2d_1x1_bias", "float16", "1x3x3x5x7", small))
    return made


def _permuted() -> list[CudaCase]:
    """Batch 1, so that heads have one stride; and plain transposes with larger batches."""
    tokens, other, scores = (1, 24, 4, 40), (1, 16, 4, 40), (1, 4, 24, 16)
    first, values = (1, 4, 24, 40), (1, 4, 40, 16)
    return [
        _case(
            "matmul_permuted_lhs",
            "float16",
            "heads",
            product(tokens, values, "float16", lhs_axes=HEADS_FIRST),
        ),
        _case(
            "matmul_permuted_rhs",
            "bfloat16",
            "heads",
            product(first, other, "bfloat16", rhs_axes=KEYS),
        ),
        _case(
            "matmul_permuted_rhs",
            "float16",
            "3x20x24x17",
            product((3, 20, 24), (3, 17, 24), "float16", rhs_axes=[0, 2, 1]),
        ),
        _case(
            "matmul_permuted_result",
            "float32",
            "heads",
            product(scores, (1, 4, 16, 40), "float32", result_axes=HEADS_FIRST),
        ),
        _case(
            "matmul_permuted_lhs_rhs",
            "float16",
            "heads",
            product(tokens, other, "float16", lhs_axes=HEADS_FIRST, rhs_axes=KEYS),
        ),
        _case(
            "matmul_permuted_lhs_rhs",
            "float32",
            "5x33x19x21",
            product((5, 33, 19), (5, 21, 33), "float32", lhs_axes=[0, 2, 1], rhs_axes=[0, 2, 1]),
        ),
        _case(
            "matmul_permuted_lhs_result",
            "bfloat16",
            "32x24x40",
            product((32, 24), (32, 40), "bfloat16", lhs_axes=[1, 0], result_axes=[1, 0]),
        ),
        _case(
            "matmul_permuted_rhs_result",
            "float16",
            "heads",
            product(
                scores, (1, 16, 4, 40), "float16", rhs_axes=HEADS_FIRST, result_axes=HEADS_FIRST
            ),
        ),
        _case(
            "matmul_permuted_lhs_rhs_result",
            "float32",
            "heads",
            product(
                tokens,
                other,
                "float32",
                lhs_axes=HEADS_FIRST,
                rhs_axes=KEYS,
                result_axes=HEADS_FIRST,
            ),
        ),
    ]


def _products() -> list[CudaCase]:
    """Two variable operands: batches, and operands shared by a batch."""
    made = []
    shapes = {
        "6x33x40x24": ((6, 33, 40), (6, 40, 24)),
        "2x3x5x9x7": ((2, 3, 5, 9), (2, 3, 9, 7)),
        "shared-lhs": ((16, 24), (3, 24, 32)),
        "shared-rhs": ((3, 16, 24), (24, 32)),
        "shared-rhs-batch": ((4, 3, 8, 16), (1, 16, 8)),
        "single-row": ((6, 1, 64), (6, 64, 40)),
        "single-column": ((6, 40, 64), (6, 64, 1)),
    }
    for number, (name, (lhs, rhs)) in enumerate(shapes.items()):
        for dtype in dict.fromkeys([_dtypes(number), "float32"]):
            made.append(_case("matmul", dtype, name, product(lhs, rhs, dtype)))
    batched = product((4, 24, 32), (4, 32, 40), "float16", chain=Chain((40,), False, "relu"))
    return [
        *made,
        _case("matmul_bias_relu", "float16", "4x24x32x40", batched),
        _case("matmul_permuted_rhs", "float16", "same-operand", gram((2, 24, 40), "float16")),
    ]


def _dense_shapes() -> list[CudaCase]:
    made = []
    bias = {96: Chain((96,)), 1000: Chain((1000,)), 3: Chain((3,)), 7: Chain((7,))}
    for rows, inner, columns in ((1, 2048, 1000), (9, 13, 7), (128, 768, 96), (33, 65, 3)):
        for dtype in RTOL:
            module = dense((rows, inner), columns, bias[columns], dtype, seed=rows)
            made.append(_case("matmul_bias", dtype, f"{rows}x{inner}x{columns}", module))
    tf32 = dense((128, 512), 256, Chain((256,), False, "relu"), "float32", seed=1)
    gelu = dense((128, 768), 3072, Chain((3072,), False, "gelu_tanh"), "float16", seed=2)
    frugal = dense((64, 4096), 64, Chain(), "float16", seed=3)
    full = dense((2, 20, 48), 24, Chain((1, 1, 24), True), "bfloat16", seed=4)
    free = dense((12, 40), 24, Chain(None, True), "float32", seed=5, variable_weights=True)
    return [
        *made,
        _case("matmul_bias_relu", "float32", "tf32", tf32, TF32_RTOL, allow_tf32=True),
        _case("matmul_bias_gelu_tanh", "float16", "128x768x3072", gelu),
        _case("matmul", "float16", "no-workspace", frugal, workspace_limit=0),
        _case("matmul", "float16", "heuristic", frugal, algorithm="heuristic"),
        _case("matmul_bias_residual", "bfloat16", "bias-of-full-rank", full),
        _case("matmul_residual", "float32", "variable-weights", free),
    ]


def _weights_by_columns() -> list[CudaCase]:
    """Constant weights whose columns are a multiple of 16 bytes long, and whose rows are not."""
    shapes = (
        ("float16", (1, 64), 97, Chain()),
        ("float16", (16, 768), 1003, Chain()),
        ("float16", (2, 9, 64), 61, Chain((61,), False, "gelu_tanh")),
        ("bfloat16", (16, 40), 34, Chain((34,), True, "relu")),
        ("float32", (17, 36), 51, Chain((51,))),
        ("float16", (5, 32), 1, Chain()),
    )
    made = []
    for seed, (dtype, rows, columns, chain) in enumerate(shapes):
        module = dense(rows, columns, chain, dtype, seed=seed)
        name = f"columns-{'x'.join(map(str, rows))}x{columns}"
        made.append(_case(f"matmul{chain.suffix}", dtype, name, module))
    return made
