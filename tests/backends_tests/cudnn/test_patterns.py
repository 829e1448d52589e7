"""What cuDNN's predicates refuse and why, its options, and how its patterns are named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.cases.compiling import cuda_target
from benchmarks.gpu.cases.cudnn._graphs import (
    attention,
    chain,
    convolution,
    norm,
    pool,
    product,
)
from collage.backends.contract import BackendTarget, PatternTriple
from collage.backends.contract.errors import TargetError
from collage.backends.cudnn.backend import CudnnBackend
from collage.backends.cudnn.options import CudnnOptions
from collage.backends.cudnn.patterns import pattern_table
from collage.backends.toolchain.cuda_toolkit import arch_of, compute_capability
from collage.testing.backend_cases import verdicts
from collage.testing.graphs import Emit, constant, graph


def triple_of(name: str, capability: int = 90, **options: Any) -> PatternTriple:
    table = pattern_table(CudnnOptions(**options), capability)
    return next(triple for triple in table if triple.name == f"cudnn.{name}")


def conv(layouts: tuple[str, str, str], **attrs: Any) -> tvm.IRModule:
    """A convolution of 8 channels of 9 by 9 with any layouts."""
    data, kernel, out = layouts
    extents, weights = dict(zip("NCHW", (1, 8, 9, 9))), dict(zip("OIHW", (16, 8, 3, 3)))  # noqa: B905
    named = {"data_layout": data, "kernel_layout": kernel, "out_layout": out}

    def body(_: Emit, x: relax.Expr) -> relax.Expr:
        w = constant(*(weights[axis] for axis in kernel), dtype="float16")
        return op.nn.conv2d(x, w, **named, **attrs)

    return graph([[extents[axis] for axis in data]], body, "float16")


def biased(make: Callable[[relax.Expr], relax.Expr], *shape: int, dtype: str = "float16") -> Any:
    """``make(x) + constant`` of a bias's shape and dtype."""

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = emit(make(x))
        return op.add(y, constant(*shape, dtype=dtype))

    return body


def dense(x: relax.Expr) -> relax.Expr:
    return op.matmul(x, constant(16, 24, dtype="float16"))


def softmax_of_mixed_axes() -> tvm.IRModule:
    return graph([(4, 8, 16)], lambda _, x: op.nn.softmax(x, axis=1), "float16")


def uncentred_norm() -> tvm.IRModule:
    def body(_: Emit, x: relax.Expr) -> relax.Expr:
        one = constant(16, dtype="float16")
        return op.nn.layer_norm(x, one, one, axes=[-1], center=False)

    return graph([(4, 16)], body, "float16")


def first_axis_norm() -> tvm.IRModule:
    def body(_: Emit, x: relax.Expr) -> relax.Expr:
        return op.nn.rms_norm(x, constant(4, dtype="float16"), axes=[0])

    return graph([(4, 16)], body, "float16")


def chain_over(axis: int, factor: int = 1) -> tvm.IRModule:
    def body(emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
        scores = emit(op.matmul(q, emit(op.permute_dims(k, [0, 1, 3, 2]))))
        if factor > 1:
            scores = emit(op.multiply(scores, constant(factor, dtype="float16")))
        return op.matmul(emit(op.nn.softmax(scores, axis=axis)), v)

    return graph([(2, 4, 16, 32), (2, 4, 16, 32), (2, 4, 16, 32)], body, "float16")


def divided_by_zero() -> tvm.IRModule:
    def body(emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
        scores = emit(op.matmul(q, emit(op.permute_dims(k, [0, 1, 3, 2]))))
        scores = emit(op.divide(scores, relax.const(0.0, "float16")))
        return op.matmul(emit(op.nn.softmax(scores, axis=-1)), v)

    return graph([(2, 4, 16, 32), (2, 4, 16, 32), (2, 4, 16, 32)], body, "float16")


def strided_keys() -> tvm.IRModule:
    """Keys whose heads lie across memory: (batch, heads, width, length) is not permuted back."""

    def body(emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
        keys = emit(op.permute_dims(k, [0, 1, 2, 3]))
        return op.matmul(emit(op.nn.softmax(emit(op.matmul(q, keys)), axis=-1)), v)

    return graph([(2, 4, 16, 32), (2, 4, 32, 16), (2, 4, 16, 32)], body, "float16")


NHWC = ("NHWC", "OHWI", "NHWC")
SMALL = (2, 4, 16, 16, 32)

REFUSALS: list[tuple[str, Callable[[], tvm.IRModule], str]] = [
    ("conv2d", lambda: conv(("NHWC", "OIHW", "NHWC")), "layouts NHWC, OIHW to NHWC"),
    ("conv2d", lambda: conv(("NHWC", "OHWI", "NCHW")), "layouts NHWC, OHWI to NCHW"),
    (
        "conv2d_clip",
        lambda: graph(
            [(1, 9, 9, 8)],
            lambda emit, x: op.clip(
                emit(
                    op.nn.conv2d(
                        x,
                        constant(16, 3, 3, 8, dtype="float16"),
                        data_layout="NHWC",
                        kernel_layout="OHWI",
                    )
                ),
                -1,
                1,
            ),
            "float16",
        ),
        "clip to [-1, 1] is no ReLU",
    ),
    (
        "matmul_bias",
        lambda: graph([(4, 16)], biased(dense, 4, 24), "float16"),
        "bias of shape (4, 24) is not one value per channel of (4, 24)",
    ),
    (
        "matmul_bias",
        lambda: graph([(4, 16)], biased(dense, 1), "float16"),
        "bias of shape (1,) is not one value per channel",
    ),
    ("matmul", lambda: product((4, 16), (16, 24), (), "float32"), "allow_tf32 is off"),
    (
        "matmul",
        lambda: product((3, 4, 16), (1, 16, 24), (), "float16", constant_right=False),
        "operands of shapes (3, 4, 16) and (1, 16, 24) are broadcast",
    ),
    (
        "conv2d",
        lambda: convolution((1, 8, 9, 9), (16, 3, 3), (), "float64"),
        "dtype float64 is not supported; only float16, bfloat16, float32",
    ),
    (
        "max_pool2d",
        lambda: pool("max_pool2d", (1, 9, 9, 8), "float16", pool_size=2, dilation=2),
        "dilation [2, 2] is not supported",
    ),
    (
        "max_pool2d",
        lambda: pool("max_pool2d", (1, 9, 9, 8), "float16", pool_size=2, padding=2),
        "padding [2, 2, 2, 2] is as wide as the window [2, 2]",
    ),
    (
        "avg_pool2d",
        lambda: pool(
            "avg_pool2d", (1, 8, 8, 8), "float16", pool_size=3, strides=2, ceil_mode=True,
            count_include_pad=True,
        ),
        "reaches beyond the padding that its average includes",
    ),
    (
        "avg_pool2d",
        lambda: pool(
            "avg_pool2d", (1, 8, 8, 8), "float16", pool_size=2, padding=(0, 0, 1, 1),
            count_include_pad=True,
        ),
        "averages wrongly over more padding after than before",
    ),
    (
        "max_pool2d",
        lambda: pool("max_pool2d", (1, 9, 9, 8), "bfloat16", pool_size=2),
        "pooling computes wrong results in bfloat16",
    ),
    (
        "conv3d",
        lambda: graph(
            [(1, 8, 4, 9, 9)],
            lambda _, x: op.nn.conv3d(
                x, constant(16, 3, 3, 3, 8, dtype="float16"), kernel_layout="ODHWI"
            ),
            "float16",
        ),
        "layouts NCDHW, ODHWI to NCDHW; only NDHWC with ODHWI and NCDHW with OIDHW",
    ),
    (
        "conv2d_transpose_relu",
        lambda: convolution(
            (1, 8, 9, 9), (8, 4, 4), ("relu",), "float16", transposed=True, channels_last=False
        ),
        "cuDNN joins nothing to a transposed convolution in NCHW; only to one in NHWC",
    ),
    (
        "conv2d_transpose_bias",
        lambda: convolution((1, 8, 9, 9), (1, 4, 4), ("bias",), "float16", transposed=True),
        "a bias of a single value",
    ),
    (
        "max_pool3d",
        lambda: pool("max_pool3d", (1, 4, 9, 9, 8), "float16", pool_size=2, padding=2),
        "padding [2, 2, 2, 2, 2, 2] is as wide as the window [2, 2, 2]",
    ),
    ("softmax", softmax_of_mixed_axes, "axis 1 of (4, 8, 16) is not the last one"),
    ("layer_norm", uncentred_norm, "without scale or bias"),
    ("rms_norm", first_axis_norm, "normalized axes [0] of (4, 16) are not the last ones"),
    ("attention", lambda: attention(SMALL, "float32"), "float16 and bfloat16, not float32"),
    ("attention", lambda: attention((1, 2, 8, 8, 20), "float16"), "not multiples of 8"),
    ("attention", lambda: attention((1, 2, 8, 8, 264), "float16"), "heads of 264 elements"),
    (
        "attention",
        lambda: attention((1, 2, 16, 8, 32), "float16", causal_mask="BottomRight"),
        "needs more keys than queries: 16 queries, 8 keys",
    ),
    (
        "attention_bias",
        lambda: attention(SMALL, "float16", bias=(2, 4, 16, 16), causal_mask="BottomRight"),
        "excludes a bias",
    ),
    ("attention_chain", lambda: chain_over(2), "softmax over axis 2, not the last"),
    ("attention_chain_scaled", lambda: chain_over(-1, 16), "scaled by 16 numbers, not one"),
    ("attention_chain_scaled", divided_by_zero, "divided by zero"),
    ("attention_chain", strided_keys, "the elements of a head are not adjacent in memory"),
    (
        "attention_chain_masked",
        lambda: chain(SMALL, "float16", mask=(2, 4, 16, 1)),
        "bias of shape (2, 4, 16, 1)",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "make", "because"), REFUSALS, ids=[f"{p}-{b[:30]}" for p, _, b in REFUSALS]
)
def test_refusal_says_why(pattern: str, make: Callable[[], tvm.IRModule], because: str) -> None:
    answers = verdicts(triple_of(pattern), make()["main"])
    assert answers, "the pattern does not match"
    assert all(not answer for answer in answers)
    assert because in answers[0].reason


def test_tf32_opens_float32_products() -> None:
    module = product((4, 16), (16, 24), (), "float32")
    (refused,) = verdicts(triple_of("matmul"), module["main"])
    (accepted,) = verdicts(triple_of("matmul", allow_tf32=True), module["main"])
    assert not refused
    assert accepted


def test_float32_convolutions_need_no_tf32() -> None:
    module = convolution((1, 8, 9, 9), (16, 3, 3), ("bias", "relu"), "float32")
    (accepted,) = verdicts(triple_of("conv2d_bias_relu"), module["main"])
    assert accepted


def test_heads_may_be_wider_on_hopper() -> None:
    module = attention((1, 2, 16, 16, 192), "float16")["main"]
    (hopper,) = verdicts(triple_of("attention", 90), module)
    (ampere,) = verdicts(triple_of("attention", 80), module)
    assert hopper
    assert "only multiples of 8 up to 128" in ampere.reason


def test_norm_over_several_last_axes_is_taken() -> None:
    (answer,) = verdicts(
        triple_of("layer_norm"), norm("layer_norm", (4, 8, 16), "bfloat16", [1, 2])["main"]
    )
    assert answer


def test_names_are_unique_and_prefixed() -> None:
    names = [triple.name for triple in pattern_table(CudnnOptions(), 90)]
    assert len(set(names)) == len(names)
    assert all(name.startswith("cudnn.") for name in names)
    longest_last = ["cudnn.conv2d", "cudnn.conv2d_bias", "cudnn.conv2d_bias_add_relu"]
    assert sorted(longest_last, key=names.index) == longest_last


def test_no_bare_product_is_clipped() -> None:
    """CuDNN computes something else; with a bias it does not."""
    names = {triple.name for triple in pattern_table(CudnnOptions(), 90)}
    assert not {"cudnn.matmul_clip", "cudnn.matmul_leakyrelu"} & names
    assert {"cudnn.matmul_bias_clip", "cudnn.conv2d_clip", "cudnn.matmul_relu"} <= names
    assert {"cudnn.matmul_bias_leakyrelu", "cudnn.conv2d_leakyrelu"} <= names


def test_residual_wins_over_bias_alone() -> None:
    """The longest chain has the highest priority."""
    module = convolution((1, 8, 9, 9), (16, 3, 3), ("bias", "add", "relu"), "float16", padding=1)
    table = pattern_table(CudnnOptions(), 90)
    taken = [t.name for t in table if any(verdicts(t, module["main"]))]
    assert taken[-1] == "cudnn.conv2d_bias_add_relu"


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"algorithm": "fastest"}, "one of 'heuristic', 'measured'"),
        ({"workspace_limit": -1}, "workspace_limit must not be negative: -1"),
        ({"workspace_limit": "1G"}, "must be int"),
        ({"allow_tf32": 1}, "must be bool"),
        ({"tf32": True}, "valid attributes: algorithm, allow_tf32, split_unsupported"),
    ],
)
def test_options_are_checked(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(TargetError, match=message):
        CudnnBackend().parse_options(attributes)


def test_compute_capability_comes_from_the_target() -> None:
    for arch, expected in (("sm_90a", 90), ("sm_80", 80), ("sm_120", 120)):
        target = BackendTarget("cudnn", cuda_target(arch), CudnnOptions())
        assert compute_capability(arch_of(target.device)) == expected


def test_bias_of_another_dtype_is_refused() -> None:
    x = relax.Var("x", relax.TensorType((4, 16), "float16"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(op.matmul(x, constant(16, 24, dtype="float16"), out_dtype="float32"))
            z = builder.emit_output(op.add(y, constant(24, dtype="float32")))
        builder.emit_func_output(z)
    answers = verdicts(triple_of("matmul_bias"), builder.get()["main"])
    assert [answer.accepted for answer in answers] == [False]
    assert "dtypes float16 and float32 are mixed" in answers[0].reason
