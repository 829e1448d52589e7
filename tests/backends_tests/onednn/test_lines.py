"""Depthwise convolutions along one axis, or of several channels of each: by kernels of pictures of
one channel of each, whatever stands around them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from collage.cost.reference import DEFAULT_RTOL, evaluate, largest_error
from collage.normalize import normalize
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.onednn.regions import Regions, run_elsewhere

SEED = int(np.random.SeedSequence().entropy) % 2**32
"""New at every run; a failure shows it."""


@dataclass(frozen=True)
class Line:
    """A convolution, and what it is between."""

    x: tuple[int, ...]
    kernel: int
    stride: int = 1
    dilation: int = 1
    multiplier: int = 1
    added: bool = False
    between: bool = False

    def body(self, emit: Emit, x: relax.Expr, rng: np.random.Generator) -> relax.Expr:
        channels, pad = self.x[1], (self.kernel - 1) * self.dilation // 2
        rank, made = len(self.x) - 2, channels * self.multiplier
        conv = op.nn.conv1d if rank == 1 else op.nn.conv2d
        taps, ones = (self.kernel,) * rank, (1,) * rank
        weights = constant(made, 1, *taps, scale=self.kernel ** (-rank / 2), rng=rng)
        if self.between:  # It comes as channels last, and goes on so.
            points = constant(channels, channels, *ones, scale=channels**-0.5, rng=rng)
            x = emit(op.nn.relu(emit(conv(x, points))))
        attrs = {
            "strides": [self.stride] * rank,
            "padding": [pad] * (2 * rank),
            "dilation": [self.dilation] * rank,
        }
        y = emit(conv(x, weights, groups=channels, **attrs))
        y = emit(op.add(y, constant(1, made, *ones, rng=rng)))
        if self.added:
            several = x if self.multiplier == 1 else emit(op.concat([x] * self.multiplier, axis=1))
            y = emit(op.add(y, several))
        y = op.nn.relu(y)
        if not self.between:
            return y
        points = constant(channels, made, *ones, scale=made**-0.5, rng=rng)
        return conv(emit(y), points)


LINES = {
    "short": Line((1, 16, 40), 3),
    "odd": Line((2, 13, 31), 5, dilation=2),
    "long": Line((1, 24, 70), 33, stride=2),
    "added": Line((3, 8, 20), 7, added=True),
    "far": Line((1, 8, 90), 3, dilation=16),
    "between": Line((1, 32, 50), 3, dilation=4, added=True, between=True),
    "several_of_a_line": Line((2, 8, 30), 3, multiplier=3),
    "several": Line((2, 12, 14, 15), 7, stride=2, multiplier=2),
    "several_odd": Line((1, 5, 9, 11), 3, multiplier=4),
    "several_between": Line((1, 32, 10, 9), 3, multiplier=2, added=True, between=True),
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Regions:
    rng = np.random.default_rng(SEED)
    graphs = {
        name: normalize(graph([line.x], lambda emit, x, line=line: line.body(emit, x, rng)))
        for name, line in LINES.items()
    }
    return Regions(graphs, tmp_path_factory.mktemp("lines"))


@pytest.mark.parametrize("isa", ["", "AVX2"])
def test_they_are_right_and_no_products_of_matrices(
    compiled: Regions, isa: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng([SEED, 1])
    given = {name: rng.standard_normal(line.x).astype("float32") for name, line in LINES.items()}
    limit = {"ONEDNN_MAX_CPU_ISA": isa} if isa else {}
    found, told = run_elsewhere(compiled.path, given, tmp_path, ONEDNN_VERBOSE="1", **limit)
    for name in LINES:
        (wanted,) = evaluate(compiled.graphs[name], [given[name]])
        assert largest_error(found[name], wanted) <= DEFAULT_RTOL, (name, SEED)
    run = [line for line in told.splitlines() if ",exec,cpu,convolution," in line]
    assert len(run) >= len(LINES)
    assert not [line for line in run if "gemm" in line]
