"""Convolutions of each channel by itself in bfloat16, between products that read them rounded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from collage.backends.devices.cpu_flags import cpu_flags_here
from collage.cost.reference import evaluate, largest_error
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.onednn.regions import Regions, random_inputs, run_elsewhere

_HALF_A_DIGIT = 2.0**-8
"""What rounding to bfloat16 changes of a number at most."""

Step = Callable[[relax.Expr], relax.Expr]


@dataclass(frozen=True)
class Case:
    """A depthwise convolution; of lines where there is one axis."""

    channels: int
    size: tuple[int, ...]
    taps: tuple[int, ...]
    steps: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    after: tuple[Step, ...] = ()
    images: int = 1
    given: bool = False
    """Whether it reads the input, which is not rounded, rather than a product's result."""

    def __call__(self, emit: Emit, x: relax.Expr) -> relax.Expr:
        convolve = {1: op.nn.conv1d, 2: op.nn.conv2d}[len(self.size)]
        ones = (1,) * len(self.size)
        width = int(x.ty.shape[1])
        y = x if self.given else emit(convolve(x, constant(self.channels, width, *ones, scale=0.3)))
        weights = constant(self.channels, 1, *self.taps, scale=float(np.prod(self.taps)) ** -0.5)
        settings = {"strides": self.steps, "padding": self.padding, "dilation": self.dilation}
        y = emit(convolve(y, weights, groups=self.channels, **settings))
        y = emit(op.add(y, constant(1, self.channels, *ones)))
        for step in self.after:
            y = emit(step(y))
        last = constant(48, self.channels, *ones, scale=self.channels**-0.5)
        return emit(convolve(y, last))


def _picture(
    channels: int, size: tuple[int, int], taps: tuple[int, int], step: int = 1, dilation: int = 1,
    after: tuple[Step, ...] = (), images: int = 1, given: bool = False,
) -> Case:  # fmt: skip
    half = [(n - 1) * dilation // 2 for n in taps]
    return Case(
        *(channels, size, taps, (step,) * 2, (*half, *half), (dilation,) * 2, after, images, given)
    )


CASES = {
    "expanded": _picture(96, (28, 28), (3, 3), after=(lambda y: op.clip(y, 0.0, 6.0),)),
    "halved": _picture(144, (29, 31), (3, 3), 2, after=(op.nn.relu,)),
    "few_channels": _picture(24, (14, 14), (5, 5), images=3),
    "odd_channels": _picture(67, (10, 13), (3, 3), after=(op.nn.silu,)),
    "wide_taps": _picture(40, (16, 15), (7, 7), after=(op.nn.gelu,)),
    "apart": _picture(64, (20, 20), (3, 3), dilation=3),
    "thirds": _picture(48, (23, 25), (5, 5), 3),
    "narrow": _picture(160, (7, 5), (3, 3), images=2),
    "rows": _picture(32, (12, 17), (1, 9), after=(lambda y: op.nn.leakyrelu(y, 0.1),)),
    "columns": _picture(32, (19, 8), (11, 1), after=(op.nn.relu, op.nn.silu)),
    "given": _picture(32, (18, 18), (3, 3), given=True),
    "uneven": Case(33, (15, 14), (4, 2), (2, 1), (0, 1, 3, 0), (1, 1)),
    "line": Case(72, (50,), (15,), (1,), (7, 7), (1,), (op.nn.silu,), images=2),
    "long_line": Case(40, (30000,), (5,), (1,), (2, 2), (1,)),
    "halved_line": Case(40, (61,), (4,), (2,), (0, 1), (2,)),
}
GRAPHS = {
    name: graph([(case.images, case.channels if case.given else 16, *case.size)], case)
    for name, case in CASES.items()
}


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> Regions:
    return Regions(GRAPHS, tmp_path_factory.mktemp("depthwise"), {"precision": "bfloat16"})


@pytest.mark.parametrize("name", CASES)
def test_it_is_right(regions: Regions, name: str) -> None:
    for _ in range(2):  # the second call finds what the first left in its rooms
        inputs = random_inputs(GRAPHS[name], np.random.default_rng())
        (found,), (wanted,) = regions.run(name, inputs), evaluate(GRAPHS[name], inputs)
        assert largest_error(found, wanted) < 4 * _HALF_A_DIGIT


@pytest.mark.skipif("avx512_bf16" not in cpu_flags_here(), reason="multiplies in float32")
def test_the_kernel_is_ours(regions: Regions, tmp_path: Path) -> None:
    near = [name for name in CASES if name != "long_line"]  # whose rows a second cache cannot hold
    given = {name: random_inputs(GRAPHS[name], np.random.default_rng())[0] for name in near}
    _, told = run_elsewhere(regions.path, given, tmp_path, ONEDNN_VERBOSE="1")
    ran = [line for line in told.splitlines() if ",exec,cpu,convolution," in line]
    assert ran
    assert not [line for line in ran if ",g" in line]


def test_what_is_no_number_stays_none(regions: Regions) -> None:
    x = np.ones((1, 16, 28, 28), np.float32)
    x[0, 0, 9, 4] = np.nan
    (found,) = regions.run("expanded", [x])
    assert np.isnan(found[0, :, 8:11, 3:6]).all()
    assert np.isfinite(found[0, :, 12:]).all()
