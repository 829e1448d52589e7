"""The toy backends are registered once for all tests of the search."""

from __future__ import annotations

import pytest

from tests.search_tests import toy_backends


@pytest.fixture(scope="session", autouse=True)
def _toys() -> None:
    toy_backends.register()
