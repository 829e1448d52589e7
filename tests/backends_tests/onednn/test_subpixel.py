"""Transposed convolutions by phases: which ones, and that they are right whatever is drawn."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.contract import BackendTarget
from collage.backends.onednn import subpixel
from collage.backends.onednn.fuse import optimize
from collage.backends.onednn.graph import OpKind
from collage.backends.onednn.partition import import_function
from collage.backends.onednn.subpixel import interleave_phases
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.onednn.regions import Regions, partition, patterns_of
from tests.backends_tests.onednn.regions import regions as regions_of
from tests.backends_tests.onednn.test_convolutions import SEED, require_agreement

_DRAWS = 12


def transposed(
    rng: np.random.Generator,
    rank: int,
    *,
    channels: int,
    filters: int,
    kernel: int | list[int],
    strides: int | list[int],
    image: int | list[int],
    groups: int = 1,
    behind: int = 0,
    batch: int = 1,
    **attrs: list[int],
) -> tvm.IRModule:
    """A transposed convolution with, behind it, a bias, a function, a sum and a function again."""

    def each(value: int | list[int]) -> list[int]:
        return [value] * rank if isinstance(value, int) else value

    scale = math.prod([channels // groups, *each(kernel)]) ** -0.5
    weights = constant(channels, filters // groups, *each(kernel), scale=scale, rng=rng)
    function = getattr(op.nn, f"conv{rank}d_transpose")

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = emit(function(x, weights, strides=each(strides), groups=groups, **attrs))
        if behind > 0:
            y = emit(op.add(y, constant(1, filters, *(1,) * rank, rng=rng)))
        if behind > 1:
            y = emit(op.nn.leakyrelu(y, 0.2))
        if behind > 2:
            y = emit(op.multiply(y, constant(*(int(n) for n in y.ty.shape), rng=rng)))
        return op.tanh(y) if behind > 3 else op.add(y, y)

    return graph([(batch, channels, *each(image))], body)


def drawn(rng: np.random.Generator) -> tvm.IRModule:
    """One with everything about it drawn."""
    rank = int(rng.integers(1, 4))

    def some(low: int, high: int) -> list[int]:
        return [int(v) for v in rng.integers(low, high + 1, rank)]

    groups = int(rng.choice([1, 1, 2, 3]))
    kernel, strides, dilation = some(1, 5), some(1, 4), some(1, 2)
    reach = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
    extents = [int(rng.integers(1, 6)) + r for r in reach]
    return transposed(
        *(rng, rank),
        channels=groups * int(rng.integers(1, 20)),
        filters=groups * int(rng.integers(1, 6)),
        kernel=kernel,
        strides=strides,
        image=extents,
        groups=groups,
        behind=int(rng.integers(0, 5)),
        batch=int(rng.integers(1, 3)),
        dilation=dilation,
        padding=[int(rng.integers(0, r + 1)) for r in (*reach, *reach)],
        output_padding=[int(rng.integers(0, s)) for s in strides],
    )


@pytest.mark.parametrize("layout", ["auto", "nhwc", "blocked", "plain"])
def test_phases_agree_with_the_reference(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subpixel, "_WORTH", math.inf)
    rng = np.random.default_rng(SEED)
    graphs = {f"drawn{n}": drawn(rng) for n in range(_DRAWS)}
    require_agreement(Regions(graphs, tmp_path, {"layout": layout}), graphs)


def kinds(mod: tvm.IRModule) -> list[OpKind]:
    """Of the one region's operators, as they are run."""
    target = BackendTarget.of("onednn", tvm.target.Target("llvm"), {})
    (function,) = regions_of(partition(mod, patterns_of(target)))
    made = import_function(function)
    optimize(made)
    interleave_phases(made)
    return [node.kind for node in made.nodes]


def test_few_channels_are_computed_by_phases_and_many_are_not() -> None:
    rng = np.random.default_rng(SEED)

    def of(filters: int, strides: int) -> tvm.IRModule:
        return transposed(
            rng, 2, channels=64, filters=filters, kernel=4, strides=strides, image=8, behind=2
        )

    few, many, plain = of(3, 2), of(64, 2), of(3, 1)
    by_phases = [OpKind.CONV, OpKind.INTERLEAVE]
    assert [kind for kind in kinds(few) if kind is not OpKind.BINARY] == by_phases
    assert OpKind.DECONV in kinds(many)
    assert OpKind.DECONV in kinds(plain)


def test_large_kernels_are_right_with_what_is_fused_to_them(tmp_path: Path) -> None:
    """oneDNN's kernel sums in blocks of taps, and applied what is fused after each of them."""
    rng = np.random.default_rng(SEED)
    shapes = [
        (2, 21, 21, 32, 16), (2, 128, 64, 12, 6), (2, 256, 64, 8, 2), (2, 16, 128, 24, 12),
        (3, 256, 64, 4, 2), (1, 256, 64, 128, 4),
    ]  # fmt: skip
    graphs = {
        f"{rank}d{channels}to{filters}by{kernel}": transposed(
            *(rng, rank),
            channels=channels,
            filters=filters,
            kernel=kernel,
            strides=stride,
            image=4,
            padding=[kernel // 4] * 2 * rank,
            behind=4,
        )
        for rank, channels, filters, kernel, stride in shapes
    }
    require_agreement(Regions(graphs, tmp_path), graphs)
