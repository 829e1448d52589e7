"""Convolutions of the reference, in pieces, against sums that are written out."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from collage.cost.reference import evaluate
from collage.cost.reference.operators import linear
from collage.testing import graph

RNG = np.random.default_rng(3)

CASES: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "sequences": (op.nn.conv1d, (2, 4, 23), (6, 4, 3), {"dilation": 4, "padding": 4}),
    "strides": (op.nn.conv2d, (2, 4, 9, 11), (6, 4, 3, 2), {"strides": (2, 3), "padding": (1, 2)}),
    "groups": (op.nn.conv2d, (1, 6, 8, 7), (9, 2, 3, 3), {"groups": 3, "padding": 1}),
    "points": (op.nn.conv2d, (2, 5, 6, 4), (3, 5, 1, 1), {}),
    "volumes": (op.nn.conv3d, (1, 3, 6, 5, 7), (4, 3, 3, 2, 3), {"strides": (1, 2, 1)}),
    "each alone": (op.nn.conv2d, (2, 4, 7, 6), (4, 1, 3, 3), {"groups": 4, "dilation": (2, 1)}),
}


def written_out(x: np.ndarray, w: np.ndarray, how: dict[str, Any]) -> np.ndarray:
    rank = x.ndim - 2

    def each(name: str, default: int) -> tuple[int, ...]:
        value = how.get(name, default)
        return (value,) * rank if isinstance(value, int) else value

    strides, dilation, padding = each("strides", 1), each("dilation", 1), each("padding", 0)
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilation, strict=True)]
    sizes = [(n - r) // s + 1 for n, r, s in zip(x.shape[2:], reach, strides, strict=True)]
    filters, own = w.shape[:2]
    out = np.zeros((x.shape[0], filters, *sizes))
    for batch, filter_, *at in itertools.product(*map(range, out.shape)):
        first = filter_ // (filters // how.get("groups", 1)) * own
        window = tuple(
            slice(a * s, a * s + r, d)
            for a, s, r, d in zip(at, strides, reach, dilation, strict=True)
        )
        piece = x[(batch, slice(first, first + own), *window)]
        out[(batch, filter_, *at)] = np.sum(piece * w[filter_])
    return out


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("piece", [1, 300, 1 << 19])
def test_in_pieces_of_whatever_size(name: str, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "_PIECE", piece)
    operator, shape, weights, how = CASES[name]
    x = RNG.standard_normal(shape).astype("float32")
    w = RNG.standard_normal(weights).astype("float32")
    mod = graph([shape], lambda _, given: operator(given, relax.const(w), **how))
    np.testing.assert_allclose(evaluate(mod, [x])[0], written_out(x, w, how), rtol=1e-4, atol=1e-4)
