"""Servers that the tests of a file share: to start them takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from collage.testing.fixtures.rpc_fleet import RpcFleet


@pytest.fixture(scope="module")
def fleet() -> Iterator[RpcFleet]:
    """Two servers, gone after this file's tests; a test that ends one starts another."""
    with RpcFleet(2) as fleet:
        yield fleet
