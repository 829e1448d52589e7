"""Convolutions and their transposes of every rank, drawn at random, alone and in a network."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.devices.cpu_flags import cpu_flags_here
from collage.cost.reference import DEFAULT_RTOL, evaluate, largest_error
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.onednn.regions import Regions

SEED = int(np.random.SeedSequence().entropy) % 2**32
"""New at every run; a failure shows it."""

_DRAWS = 4


def drawn(
    rng: np.random.Generator, rank: int, *, transposed: bool, computed: bool = False
) -> tvm.IRModule:
    """One convolution with everything about it drawn, a bias, and what may stand behind it; its
    weights constants, or computed from an input of their shape.
    """

    def some(low: int, high: int) -> list[int]:
        return [int(v) for v in rng.integers(low, high + 1, rank)]

    groups = int(rng.choice([1, 1, 2, 4]))
    depthwise = groups == 4 and rng.random() < 0.5
    channels = groups * (1 if depthwise else int(rng.integers(1, 9)))
    filters = groups * (1 if depthwise else int(rng.integers(1, 9)))
    kernel, strides, dilation = some(1, 4), some(1, 3), some(1, 2)
    reach = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
    padding = [int(rng.integers(0, r + 1)) // 2 for r in (*reach, *reach)]
    attrs = {"strides": strides, "dilation": dilation, "padding": padding, "groups": groups}
    image = [int(rng.integers(1, 8)) + (0 if transposed else r) for r in reach]
    image = [n + 2 for n in image]
    scale = math.prod([channels // groups, *kernel]) ** -0.5
    if transposed:
        # Less than the stride, or than the dilation.
        attrs["output_padding"] = [int(rng.integers(0, s)) for s in strides]
        weights = constant(channels, filters // groups, *kernel, scale=scale, rng=rng)
    else:
        weights = constant(filters, channels // groups, *kernel, scale=scale, rng=rng)
    function = getattr(op.nn, f"conv{rank}d" + ("_transpose" if transposed else ""))
    behind = int(rng.integers(0, 4))

    def body(emit: Emit, x: relax.Expr, *given: relax.Expr) -> relax.Expr:
        used = emit(op.multiply(given[0], weights)) if computed else weights
        y = function(x, used, **attrs)
        if behind > 0:
            bias = constant(1, filters, *(1,) * rank, rng=rng)
            y = op.add(emit(y), bias)
        if behind > 1:
            y = op.nn.leakyrelu(emit(y), 0.2) if behind == 2 else op.tanh(emit(y))
        return y

    shapes = [(int(rng.integers(1, 3)), channels, *image)]
    if computed:
        shapes.append(weights.value.shape)
    return graph(shapes, body)


def upsampling(rank: int) -> tvm.IRModule:
    """As in a U-Net: down, up, joined with what was there, pooled, and a head."""

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        conv, up = getattr(op.nn, f"conv{rank}d"), getattr(op.nn, f"conv{rank}d_transpose")
        pool = getattr(op.nn, f"max_pool{rank}d")
        kernel, ones = (3,) * rank, (1,) * rank

        def block(y: relax.Expr, into: int, out: int) -> relax.Expr:
            weights = constant(out, into, *kernel, scale=(into * 3**rank) ** -0.5)
            y = emit(conv(y, weights, padding=ones * 2))
            return emit(op.nn.relu(emit(op.add(y, constant(1, out, *ones)))))

        here = block(x, 3, 16)
        deep = block(emit(pool(here, (2,) * rank, (2,) * rank)), 16, 32)
        weights = constant(32, 16, *(2,) * rank, scale=0.2)
        back = emit(up(deep, weights, strides=(2,) * rank))
        back = emit(op.nn.relu(emit(op.add(back, constant(1, 16, *ones)))))
        y = block(emit(op.concat([back, here], axis=1)), 32, 16)
        return emit(op.tanh(emit(op.add(y, here))))

    return graph([(1, 3, 8, 12, 4)[: rank + 2]], body)


def modulated() -> tvm.IRModule:
    """As in a StyleGAN: each picture of a batch has weights of its own, as groups of one picture;
    what comes out is resized as a batch again."""
    rng = np.random.default_rng(SEED + 3)

    def body(emit: Emit, x: relax.Expr, style: relax.Expr) -> relax.Expr:
        weights = emit(op.multiply(constant(1, 32, 32, 3, 3, scale=0.1, rng=rng), style))
        norm = emit(op.sqrt(emit(op.sum(emit(op.multiply(weights, weights)), [2, 3, 4], True))))
        weights = emit(op.reshape(emit(op.divide(weights, norm)), (64, 32, 3, 3)))
        folded = emit(op.reshape(x, (1, 64, 12, 12)))
        y = emit(op.nn.conv2d(folded, weights, padding=1, groups=2))
        y = emit(op.nn.leakyrelu(emit(op.reshape(y, (2, 32, 12, 12))), 0.2))
        return op.image.resize2d(y, (24, 24), layout="NCHW", method="linear")

    return graph([(2, 32, 12, 12), (2, 1, 32, 1, 1)], body)


def modules() -> dict[str, tvm.IRModule]:
    rng = np.random.default_rng(SEED)
    kinds = itertools.product((1, 2, 3), (False, True), range(_DRAWS))
    made = {
        f"{'transposed' if transposed else 'plain'}{rank}d{number}": drawn(
            rng, rank, transposed=transposed
        )
        for rank, transposed, number in kinds
    }
    for rank, transposed, number in itertools.product((1, 2, 3), (False, True), range(_DRAWS)):
        name = f"computed{'_transposed' if transposed else ''}{rank}d{number}"
        made[name] = drawn(rng, rank, transposed=transposed, computed=True)
    made["modulated"] = modulated()
    return {**made, **{f"upsampling{rank}d": upsampling(rank) for rank in (1, 2, 3)}}


def require_agreement(compiled: Regions, graphs: Mapping[str, tvm.IRModule]) -> None:
    """Each graph gives what the reference gives, and once more when everything is built."""
    rng = np.random.default_rng(SEED + 1)
    for name, mod in graphs.items():
        for _ in range(2):  # the second call finds everything built
            shapes = [[int(n) for n in param.ty.shape] for param in mod["main"].params]
            inputs = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
            (expected,) = evaluate(mod, inputs)
            (actual,) = compiled.run(name, inputs)
            error = largest_error(actual, expected)
            assert error < DEFAULT_RTOL, f"{name} of seed {SEED}: {error}\n{mod.script()}"


@pytest.fixture(scope="module", params=["auto", "nhwc", "blocked", "plain"])
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_they_agree_with_the_reference(
    layout: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    graphs = modules()
    compiled = Regions(
        graphs, tmp_path_factory.mktemp(f"convolutions_{layout}"), {"layout": layout}
    )
    require_agreement(compiled, graphs)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_transposes_of_many_channels_are_right(
    rank: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """oneDNN's kernel sums blocks of channels, and applied what is fused after each of them."""
    rng = np.random.default_rng(SEED + 2)
    function = getattr(op.nn, f"conv{rank}d_transpose")

    def made(channels: int, groups: int) -> tvm.IRModule:
        def body(emit: Emit, x: relax.Expr) -> relax.Expr:
            scale = (channels // groups * 4**rank) ** -0.5
            weights = constant(channels, 32 // groups, *(4,) * rank, scale=scale, rng=rng)
            attrs = {"strides": (2,) * rank, "padding": (1,) * (2 * rank), "groups": groups}
            y = op.add(emit(function(x, weights, **attrs)), constant(1, 32, *(1,) * rank, rng=rng))
            return op.nn.relu(emit(y))

        return graph([(2, channels, *(4,) * rank)], body)

    graphs = {f"of{c}in{g}": made(c, g) for c, g in ((384, 1), (512, 1), (640, 1), (1024, 2))}
    compiled = Regions(graphs, tmp_path_factory.mktemp(f"wide{rank}"))
    require_agreement(compiled, graphs)


@pytest.mark.skipif("avx512f" not in cpu_flags_here(), reason="needs AVX-512")
@pytest.mark.parametrize(("channels", "taps", "stride"), [(256, 3, 2), (512, 2, 2), (256, 3, 1)])
def test_sums_along_one_axis_are_added_up_in_blocks(
    channels: int, taps: int, stride: int, tmp_path: Path
) -> None:
    """One by one, as the kernel for channels last adds them, they are off three times as far."""
    rng = np.random.default_rng(SEED + 3)
    weights = (
        rng.standard_normal((64, channels, taps)).astype(np.float32) * (channels * taps) ** -0.5
    )

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        return emit(op.nn.conv1d(x, relax.const(weights), strides=[stride]))

    mod = graph([(1, channels, 400)], body)
    x = rng.standard_normal((1, channels, 400)).astype(np.float32)
    (actual,) = Regions({"line": mod}, tmp_path).run("line", [x])
    windows = np.lib.stride_tricks.sliding_window_view(x[0].astype(np.float64), taps, axis=1)
    expected = np.einsum("clk,fck->fl", windows[:, ::stride], weights.astype(np.float64))
    error = np.sqrt(np.mean((actual[0] - expected) ** 2) / np.mean(expected**2))
    assert error < 2.5e-7, f"{error} of seed {SEED}"
