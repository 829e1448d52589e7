"""Softmax: rows of every length, what is masked, what is no number, and other axes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from collage.backends.devices.cpu_flags import cpu_flags_here
from collage.testing.graphs import Emit, graph
from tests.backends_tests.onednn.regions import Regions, run_elsewhere

_OWN_ROWS = "avx2" in cpu_flags_here()
"""Rows are walked through by vectors of ours with AVX2 at least, and by the library elsewhere."""

LENGTHS = (1, 2, 7, 15, 16, 17, 31, 32, 33, 49, 64, 197, 256, 1000)


def _turned(emit: Emit, x: relax.Expr) -> relax.Expr:
    """The axis that is shared out has its numbers side by side only in memory."""
    turned = emit(op.permute_dims(emit(op.negative(x)), [0, 2, 1]))
    return emit(op.nn.softmax(turned, axis=1))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Regions:
    graphs = {
        f"rows_of_{count}": graph([(3, 5, count)], lambda _, x: op.nn.softmax(x, axis=2))
        for count in LENGTHS
    }
    graphs |= {
        f"logarithms_of_{count}": graph([(3, 5, count)], lambda _, x: op.nn.log_softmax(x, axis=2))
        for count in LENGTHS
    }
    graphs["turned"] = graph([(3, 5, 40)], _turned)
    graphs["middle"] = graph([(3, 40, 5)], lambda _, x: op.nn.softmax(x, axis=1))
    graphs["middle_logarithms"] = graph([(3, 40, 5)], lambda _, x: op.nn.log_softmax(x, axis=1))
    graphs["many"] = graph([(300, 197)], lambda _, x: op.nn.softmax(x))
    return Regions(graphs, tmp_path_factory.mktemp("softmax"))


def _softmax(x: np.ndarray, axis: int) -> np.ndarray:
    powers = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def _require(found: np.ndarray, x: np.ndarray, axis: int) -> None:
    """Right to the last digits that the distance to the largest leaves in float32."""
    wanted = _softmax(x, axis)
    distance = x.max(axis, keepdims=True) - x.astype(np.float64)
    relative = 1e-6 + 2.0**-24 * np.where(wanted > 0, distance, 0)
    # Below that numbers are denormal, which calls flush to zero.
    assert (np.abs(found - wanted) <= relative * wanted + 2e-38).all()


def _drawn(shape: tuple[int, ...], scale: float = 1.0) -> np.ndarray:
    return (scale * np.random.default_rng().standard_normal(shape)).astype(np.float32)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("count", LENGTHS)
def test_rows_of_every_length_to_their_last_digits(
    compiled: Regions, count: int, scale: float
) -> None:
    if scale > 1 and not _OWN_ROWS:
        pytest.skip("the library's own")
    x = _drawn((3, 5, count), scale)
    (found,) = compiled.run(f"rows_of_{count}", [x])
    _require(found, x, 2)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("count", LENGTHS)
def test_logarithms_to_their_last_digits(compiled: Regions, count: int, scale: float) -> None:
    x = _drawn((3, 5, count), scale)
    (found,) = compiled.run(f"logarithms_of_{count}", [x])
    distance = x.astype(np.float64) - x.max(2, keepdims=True)
    logarithm = np.log(np.exp(distance).sum(2, keepdims=True))
    # Two subtractions, and the logarithm of a sum that is off by 1e-6 at most.
    allowed = 2.0**-23 * (np.abs(distance) + logarithm) + 1e-6
    assert (np.abs(found - (distance - logarithm)) <= allowed).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logarithms_of_what_is_no_number(compiled: Regions, value: float) -> None:
    x = _drawn((3, 5, 49))
    x[1, 2, 48] = value
    (found,) = compiled.run("logarithms_of_49", [x])
    with np.errstate(invalid="ignore", divide="ignore"):
        wanted = np.log(_softmax(x, 2))
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)


def test_rows_shared_by_threads(compiled: Regions) -> None:
    x = _drawn((300, 197), 4.0)
    (found,) = compiled.run("many", [x])
    _require(found, x, 1)


def test_other_axes(compiled: Regions) -> None:
    x = _drawn((3, 40, 5))
    _require(compiled.run("middle", [x])[0], x, 1)
    y = _drawn((3, 5, 40))
    _require(compiled.run("turned", [y])[0], -y.transpose(0, 2, 1), 1)


@pytest.mark.parametrize("mask", [-np.inf, -3e38, -1e4])
def test_what_is_masked_gets_nothing(compiled: Regions, mask: float) -> None:
    x = _drawn((3, 5, 49))
    x[:, :, 20:] = mask
    x[0, 0, :20] = mask
    x[0, 0, 48] = 2.0
    (found,) = compiled.run("rows_of_49", [x])
    _require(found, x, 2)


@pytest.mark.skipif(not _OWN_ROWS, reason="the library's own gives numbers there")
@pytest.mark.parametrize("place", [0, 16, 48])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_makes_no_numbers_of_its_row_alone(
    compiled: Regions, place: int, value: float
) -> None:
    x = _drawn((3, 5, 49))
    x[1, 2, place] = value
    (found,) = compiled.run("rows_of_49", [x])
    with np.errstate(invalid="ignore"):
        wanted = _softmax(x, 2)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    assert np.isnan(wanted[1, 2, place])


def _require_logarithms(found: np.ndarray, x: np.ndarray, axis: int) -> None:
    """As exact as PyTorch's (4e-8): the library's own are off by 2e-7 to 8e-7."""
    with np.errstate(invalid="ignore"):
        distance = x.astype(np.float64) - x.max(axis, keepdims=True)
        wanted = distance - np.log(np.exp(distance).sum(axis, keepdims=True))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(found[~finite & ~np.isnan(wanted)], -np.inf)
    off = found[finite] - wanted[finite]
    assert np.sqrt((off**2).mean()) <= 1e-7 * np.sqrt((wanted[finite] ** 2).mean())


def _logarithms() -> dict[str, tuple[np.ndarray, int]]:
    given = {f"logarithms_of_{n}": (_drawn((3, 5, n), 4.0), 2) for n in LENGTHS}
    masked, nothing = given["logarithms_of_49"][0], given["logarithms_of_64"][0]
    masked[:, :, 20:] = -np.inf
    nothing[1, 2, 16] = np.nan
    nothing[0, 3, 60] = np.inf
    return {**given, "middle_logarithms": (_drawn((3, 40, 5)), 1)}


def test_logarithms_of_what_is_masked_and_of_no_numbers_and_along_other_axes(
    compiled: Regions,
) -> None:
    for name, (x, axis) in _logarithms().items():
        _require_logarithms(compiled.run(name, [x])[0], x, axis)


def test_logarithms_where_there_are_no_vectors_of_ours(compiled: Regions, tmp_path: Path) -> None:
    given = _logarithms()
    found, _ = run_elsewhere(
        compiled.path, {n: x for n, (x, _) in given.items()}, tmp_path, ONEDNN_MAX_CPU_ISA="AVX2"
    )
    for name, (x, axis) in given.items():
        _require_logarithms(found[name], x, axis)
