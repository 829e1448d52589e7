"""Each backend that takes whole regions on a CPU, in turn."""

from __future__ import annotations

import pytest

from tests.backends_tests.whole_regions.regions import Regions


@pytest.fixture(params=["openvino", "onnxruntime"])
def regions(request: pytest.FixtureRequest) -> Regions:
    """A backend that is installed; the test is skipped where it is not."""
    found = Regions(request.param)
    if not found.backend().probe().usable:
        pytest.skip(f"{found.name} is not installed")
    return found
