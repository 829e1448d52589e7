"""Products with the matrices of Fourier transforms, which a CPU computes as fast transforms."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from collage.backends.contract import BuildContext
from collage.backends.relax.fourier import transform_matrix
from collage.backends.tvm.common.fourier import factors, recognized
from tests.backends_tests.tvm import cases

KINDS = ("from_real", "to_real", "complex", "inverse")


def matrix_of(kind: str, length: int) -> np.ndarray:
    bins = length // 2 + 1 if kind.endswith("real") else length
    back = kind in ("to_real", "inverse")
    whole = transform_matrix(length, bins, inverse=back, real_back=kind == "to_real")
    parts = whole[:, :1] if kind == "from_real" else whole
    return parts.reshape(parts.shape[0] * parts.shape[1], -1).astype(np.float32)


def wanted(kind: str, length: int, x: np.ndarray) -> np.ndarray:
    """NumPy's, in float64."""
    if kind == "from_real":
        found = np.fft.rfft(x)
    else:
        pairs = x.astype(np.float64).reshape(*x.shape[:-1], -1, 2)
        given = pairs[..., 0] + 1j * pairs[..., 1]
        if kind == "to_real":
            return np.fft.irfft(given, length)
        found = np.fft.fft(given) if kind == "complex" else np.fft.ifft(given)
    return np.stack([found.real, found.imag], -1).reshape(*x.shape[:-1], -1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [208, 462, 1025, 170, 135])
def test_transforms_of_rows_are_numpys(kind: str, length: int, context: BuildContext) -> None:
    matrix = matrix_of(kind, length)
    x = np.random.default_rng().standard_normal((3, 7, len(matrix))).astype(np.float32)

    def body(emit: cases.Body, x: relax.Expr) -> relax.Expr:
        return emit(relax.op.matmul(x, relax.const(matrix)))

    mod = cases.partition(body, [x])
    (got,) = cases.run(mod, [x], context)
    exact = wanted(kind, length, x)
    # What a product loses grows with the root of the length; this does not.
    error = np.sqrt(np.square(got - exact).mean()) / np.sqrt(np.square(exact).mean())
    assert error < 2.5e-7
    assert got.shape == exact.shape


@pytest.mark.parametrize("length", [30, 208, 512])
def test_real_bins_have_no_imaginary_part(length: int, context: BuildContext) -> None:
    """The phase of a negative one is half a turn, and on the sign of 1e-16 the other way round."""
    matrix = matrix_of("from_real", length)
    x = np.random.default_rng().standard_normal((40, length)).astype(np.float32)

    def body(emit: cases.Body, x: relax.Expr) -> relax.Expr:
        return emit(relax.op.matmul(x, relax.const(matrix)))

    (got,) = cases.run(cases.partition(body, [x]), [x], context)
    real = got.reshape(40, -1, 2)[:, [0, -1], 1]
    assert not real.any() and not np.signbit(real).any()


def test_only_what_is_a_transform_is_taken_for_one() -> None:
    for kind in KINDS:
        matrix = matrix_of(kind, 32).astype(np.float64)
        found = recognized(matrix * 0.25)
        assert found is not None and found.length == 32
        spoilt = matrix.copy()
        spoilt[3, 5] += 1e-3
        assert recognized(spoilt) is None
    assert recognized(np.ones((32, 34))) is None
    assert recognized(np.zeros((32, 32))) is None
    assert recognized(np.eye(64)) is None


@pytest.mark.parametrize("length", [128, 45])
def test_a_window_behind_a_transform_is_part_of_it(length: int, context: BuildContext) -> None:
    window = np.hanning(length)
    matrix = (matrix_of("to_real", length) * window).astype(np.float32)
    found = recognized(matrix.astype(np.float64))
    assert found is not None and found.window
    x = np.random.default_rng().standard_normal((40, len(matrix))).astype(np.float32)

    def body(emit: cases.Body, x: relax.Expr) -> relax.Expr:
        return emit(relax.op.matmul(x, relax.const(matrix)))

    (got,) = cases.run(cases.partition(body, [x]), [x], context)
    np.testing.assert_allclose(got, wanted("to_real", length, x) * window, atol=2e-6)


def test_lengths_with_huge_primes_stay_products() -> None:
    assert factors(2 * 17) == (2, 17)
    assert factors(2 * 1223) == ()
