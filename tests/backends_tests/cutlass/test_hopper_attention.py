"""Hopper's fused attention under the model of its copies, barriers and products on the CPU."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import ml_dtypes  # noqa: F401 - bfloat16 by its name
import numpy as np
import pytest

from tests.backends_tests.cutlass.hopper_library import (
    Array,
    compile_for_host,
    drawn,
    integers,
    pointers,
)

pytestmark = [pytest.mark.cuda, pytest.mark.timeout(900)]

MASKS = {"": 0, "TopLeft": 1, "BottomRight": 2}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compile_for_host("cutlass_attention.cc", tmp_path_factory.mktemp("attention"))


@dataclass(frozen=True)
class Case:
    """Extents, and how operands and result lie; ``bias``: which of its four axes are whole."""

    batch: int
    heads: int
    queries: int
    keys: int
    dim: int
    dim_value: int
    layout: str = "bshd"
    mask: str = ""
    bias: str = ""
    scale: float = 0.3
    dtype: str = "float16"


def expected(case: Case, q: Array, k: Array, v: Array, bias: Array | None) -> Array:
    """Of (batch, head, sequence, element), in float64."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.transpose(0, 1, 3, 2) * np.float64(np.float32(case.scale))
    if bias is not None:
        scores = scores + bias.astype(np.float64)
    ahead = {"": case.keys, "TopLeft": 0, "BottomRight": case.keys - case.queries}[case.mask]
    hidden = np.arange(case.keys)[None] > np.arange(case.queries)[:, None] + ahead
    scores = np.where(hidden, -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)) @ v


def made(library: ctypes.CDLL, block: tuple[int, int, int], case: Case, fill: float = 0) -> None:
    """Run a case and compare; ``fill`` takes the place of some of the bias."""
    rng = np.random.default_rng(case.queries + case.keys)
    dims = (case.dim, case.dim, case.dim_value)
    rows = (case.queries, case.keys, case.keys)
    shapes = [(case.batch, case.heads, n, d) for n, d in zip(rows, dims, strict=True)]
    q, k, v = (drawn(rng, *shape).astype(case.dtype) for shape in shapes)
    bias = None
    if case.bias:
        extents = (case.batch, case.heads, case.queries, case.keys)
        shape = [n if axis in case.bias else 1 for n, axis in zip(extents, "bhqk", strict=True)]
        bias = drawn(rng, *shape).astype(case.dtype)
        if fill:
            bias[rng.random(shape) < 0.3] = fill
            bias[..., 0] = 0
    joined, by_head = case.layout == "joined", case.layout == "bhsd"
    places = [0, 0, 0]
    if joined:
        width = case.heads * sum(dims)
        parts = [x.transpose(0, 2, 1, 3).reshape(case.batch, rows[0], -1) for x in (q, k, v)]
        stored = [np.concatenate(parts, axis=-1)]
        strides = [s for d in dims for s in (width, d, rows[0] * width)]
        places = [0, case.heads * dims[0], 2 * case.heads * dims[0]]
    elif by_head:
        stored = [q, k, v]
        strides = [
            s for n, d in zip(rows, dims, strict=True) for s in (d, n * d, case.heads * n * d)
        ]
    else:
        stored = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in (q, k, v)]
        strides = [
            s
            for n, d in zip(rows, dims, strict=True)
            for s in (case.heads * d, d, n * case.heads * d)
        ]
    bias_strides = [0, 0, 0]
    if bias is not None:
        row, head, batch = (bias.strides[axis] // 2 for axis in (2, 1, 0))
        whole = ["q" in case.bias, "h" in case.bias, "b" in case.bias]
        bias_strides = [s * w for s, w in zip((row, head, batch), whole, strict=True)]
        stored.append(bias)
    wanted = expected(case, q, k, v, bias)
    # Elements behind the result must stay as they are.
    output = np.full(wanted.size + 64, 77, case.dtype)
    extents = [case.batch, case.heads, *rows[:2], case.dim, case.dim_value, MASKS[case.mask]]
    failed = library.run_attention(
        *(*block, bias is not None, joined, by_head, case.dtype == "float16"),
        ctypes.c_float(case.scale),
        integers([*extents, *strides, *bias_strides, *places]),
        pointers(stored),
        ctypes.c_void_p(output.ctypes.data),
    )
    assert failed == 0
    assert (output[wanted.size :] == 77).all()
    found = output[: wanted.size]
    if by_head:
        found = found.reshape(wanted.shape)
    else:
        lying = (case.batch, case.queries, case.heads, case.dim_value)
        found = found.reshape(lying).transpose(0, 2, 1, 3)
    bound = 2e-3 if case.dtype == "float16" else 1.6e-2
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=bound, atol=bound / 2)


@pytest.mark.parametrize(
    ("block", "dims"),
    [
        ((64, 64, 64), (64, 40)),
        ((128, 64, 128), (80, 128)),
        ((128, 128, 64), (24, 64)),
        ((128, 64, 256), (200, 256)),
    ],
)
@pytest.mark.parametrize("mask", sorted(MASKS))
def test_every_block_with_odd_lengths_and_masks(
    library: ctypes.CDLL, block: tuple[int, int, int], dims: tuple[int, int], mask: str
) -> None:
    """Lengths on both sides of the blocks' edges, more pieces than stages, each layout."""
    longest = 3 * block[1] + 11
    made(library, block, Case(1, 1, 70, longest, *dims, mask=mask))
    made(library, block, Case(1, 2, 131, 131, *dims, layout="joined", mask=mask))
    made(library, block, Case(2, 2, 1, 63, *dims, layout="bhsd", mask=mask))
    if mask == "TopLeft":
        made(library, block, Case(1, 1, 200, 40, *dims, mask=mask))


@pytest.mark.parametrize("axes", ["k", "bk", "qk", "hqk", "bhqk"])
@pytest.mark.parametrize("layout", ["bshd", "bhsd", "joined"])
def test_a_bias_of_any_extents(library: ctypes.CDLL, axes: str, layout: str) -> None:
    """Rows of an odd number begin anywhere."""
    made(library, (64, 64, 64), Case(2, 2, 71, 71, 24, 24, layout=layout, bias=axes))
    if layout == "bhsd":
        case = Case(1, 2, 136, 136, 64, 64, layout=layout, bias=axes)
        made(library, (128, 128, 64), case, fill=-np.inf)


def test_what_a_bias_hides_in_whole_pieces(library: ctypes.CDLL) -> None:
    """The first keys of all: a row sees nothing in a piece, and something later."""
    case = Case(1, 2, 70, 200, 64, 64, bias="qk", scale=0.125)
    rng = np.random.default_rng(3)
    q, k, v = (drawn(rng, 1, 2, n, 64) for n in (70, 200, 200))
    bias = np.zeros((1, 1, 70, 200), np.float16)
    bias[..., :150] = -np.inf
    stored = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in (q, k, v)]
    strides = [s for n in (70, 200, 200) for s in (128, 64, n * 128)]
    output = np.empty((1, 70, 2, 64), np.float16)
    failed = library.run_attention(
        *(64, 64, 64, True, False, False, True),
        ctypes.c_float(case.scale),
        integers([1, 2, 70, 200, 64, 64, 0, *strides, 200, 0, 0, 0, 0, 0]),
        pointers([*stored, bias]),
        ctypes.c_void_p(output.ctypes.data),
    )
    assert failed == 0
    wanted = expected(case, q, k, v, bias)
    np.testing.assert_allclose(output.transpose(0, 2, 1, 3), wanted, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("scale", [-0.2, 0.0, 4.0])
@pytest.mark.parametrize("bias", ["", "hqk"])
def test_every_scale(library: ctypes.CDLL, scale: float, bias: str) -> None:
    case = Case(1, 2, 72, 136, 64, 64, mask="TopLeft", scale=scale, bias=bias)
    made(library, (64, 64, 64), case)


def test_bfloat16(library: ctypes.CDLL) -> None:
    for bias in ("", "bk"):
        case = Case(2, 1, 72, 200, 64, 56, dtype="bfloat16", bias=bias)
        made(library, (128, 64, 128), case)
