"""The user's own words for how wrong outputs are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collage.backends.contract.errors import PrecisionError
from collage.cost.reference import Metric, Sample


def _scores(*shape: int) -> np.ndarray:
    return np.random.default_rng().standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(40, 7), (2, 20, 7), (40, 7, 1, 1)])
def test_top1_counts_classes_that_differ(shape: tuple[int, ...]) -> None:
    wanted = _scores(*shape)
    got = wanted.copy()
    rows = got.reshape(-1, 7)
    for row in range(10):
        rows[row, (rows[row].argmax() + 1) % 7] = 10.0
    assert Metric.of("top1").error([got], [wanted]) == pytest.approx(0.25)
    assert Metric.of("top1").error([wanted * 2], [wanted]) == 0.0


def test_whole_numbers_are_classes() -> None:
    wanted = np.arange(8)
    got = wanted.copy()
    got[3] = 0
    assert Metric.of("top1").error([got], [wanted]) == 0.125


def test_a_function_goes_along_with_a_sample(tmp_path: Path) -> None:
    weight = 3.0
    metric = Metric.of(lambda got, wanted: weight * np.abs(got[0] - wanted[0]).mean())
    x = _scores(5)
    Sample([x], [x], Sample.of([x], [x]).noise, metric).save(tmp_path / "sample")
    loaded = Sample.load(tmp_path / "sample").metric
    assert loaded is not None
    assert loaded.key == metric.key
    assert loaded.error([x + 1], [x]) == pytest.approx(3.0, rel=1e-5)
    Sample.of([x], [x]).save(tmp_path / "other")
    assert Sample.load(tmp_path / "other").metric is None


def test_what_is_no_metric_is_said() -> None:
    with pytest.raises(PrecisionError, match="unknown metric 'top5'; give 'top1'"):
        Metric.of("top5")
    x = _scores(3)
    with pytest.raises(PrecisionError, match="fails: division by zero"):
        Metric.of(lambda got, wanted: 1 / 0).error([x], [x])
    with pytest.raises(PrecisionError, match="gives nan, not a number from 0 on"):
        Metric.of(lambda got, wanted: float("nan")).error([x], [x])
