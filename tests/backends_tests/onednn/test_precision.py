"""Products of operands rounded to bfloat16: right to its digits, and really computed so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from collage.backends.contract import Precision
from collage.backends.contract.errors import TargetError
from collage.backends.devices.cpu_flags import cpu_flags_here
from collage.backends.onednn.options import BFLOAT16_FLAG
from collage.cost.reference import evaluate, largest_error
from collage.targets import resolve_targets
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.onednn.regions import Regions

Body = Callable[[Emit, relax.Expr], relax.Expr]

_HALF_A_DIGIT = 2.0**-8
"""What rounding to bfloat16 changes of a number at most."""


def _matmul(emit: Emit, x: relax.Expr) -> relax.Expr:
    return op.nn.gelu(emit(op.matmul(x, constant(256, 512, scale=1 / 16))))


def _conv(emit: Emit, x: relax.Expr) -> relax.Expr:
    y = op.nn.conv2d(x, constant(64, 32, 3, 3, scale=1 / 17), padding=1)
    return op.nn.relu(op.add(emit(y), constant(1, 64, 1, 1)))


@pytest.mark.parametrize("shape, body", [((64, 256), _matmul), ((1, 32, 28, 28), _conv)])
def test_operands_are_rounded_and_nothing_else(
    shape: tuple[int, ...], body: Body, tmp_path: Path
) -> None:
    mod = graph([shape], body)
    x = np.random.default_rng().standard_normal(shape).astype(np.float32)
    (expected,) = evaluate(mod, [x])
    regions = Regions({"main": mod}, tmp_path / "regions", {"precision": "bfloat16"})
    (got,) = regions.run("main", [x])
    off = largest_error(got, expected)
    # Each product is off by less than two roundings; sums of hundreds, by far less.
    assert off < 4 * _HALF_A_DIGIT
    if BFLOAT16_FLAG in cpu_flags_here():
        assert off > 2e-5, "it was computed in float32"


def test_a_precision_is_one_of_two() -> None:
    (_, target) = resolve_targets(["llvm", {"kind": "onednn", "precision": "bfloat16"}])
    assert target.implementation.precision(target.options) is Precision.BFLOAT16
    with pytest.raises(TargetError, match="float32, bfloat16"):
        resolve_targets(["llvm", {"kind": "onednn", "precision": "int4"}])
