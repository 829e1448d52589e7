"""Ranges of values, and steps over them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage.backends.contract.errors import PrecisionError
from collage.pipeline.precision.calibration import check_method
from collage.pipeline.precision.ranges import METHODS, Seen, steps_over

finite = st.floats(-1e4, 1e4, allow_nan=False)


@given(low=finite, high=finite)
def test_steps_reach_as_far_as_the_range(low: float, high: float) -> None:
    low, high = min(low, high, 0.0), max(low, high, 0.0)
    steps = steps_over((low, high))
    assert 0 <= steps.point <= 255
    # Half a step is what the place of zero takes, three digits make a step a hundredth longer.
    assert -steps.point * steps.step <= low + 0.51 * steps.step
    assert (255 - steps.point) * steps.step >= high - 0.51 * steps.step
    if high - low > 1e-3:
        assert steps.step <= 1.011 * (high - low) / 255


def _seen(*samples: np.ndarray) -> Seen:
    seen = Seen(len(samples))
    for sample in samples:
        seen.look(sample.astype(np.float32))
    return seen


def test_outliers_count_for_some_methods() -> None:
    random = np.random.default_rng()
    values = np.maximum(random.standard_normal(60_000), 0)
    values[17] = 40.0
    found = {name: method(_seen(values)) for name, method in METHODS.items()}
    assert found["minmax"] == (0.0, 40.0)
    assert 3.0 < found["percentile"][1] < 6.0
    # A single value in sixty thousand is no information worth five bits of the others.
    assert 2.0 < found["entropy"][1] < 20.0
    assert found["percentile"][0] == found["entropy"][0] == 0.0


@pytest.mark.parametrize("name", METHODS)
def test_all_samples_count(name: str) -> None:
    ramp = np.linspace(0, 1, 5000)
    low, high = METHODS[name](_seen(ramp, -3 * ramp, np.array([np.nan, np.inf])))
    assert -3.0 <= low < -1.0
    assert 0.9 < high <= 1.0


@pytest.mark.parametrize("name", METHODS)
def test_a_tensor_of_zeros_has_steps(name: str) -> None:
    assert steps_over(METHODS[name](_seen(np.zeros(10)))).step == 1.0


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(PrecisionError, match="unknown calibration 'mean'; known ones: auto, min"):
        check_method("mean")
