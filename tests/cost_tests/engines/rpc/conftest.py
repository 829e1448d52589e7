"""Servers that the tests of this folder share: to start them takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from collage.testing.rpc_fleet import RpcFleet


@pytest.fixture(scope="package")
def fleet() -> Iterator[RpcFleet]:
    """Two servers, gone after this folder's tests; a test that ends one starts another."""
    with RpcFleet(2) as fleet:
        yield fleet
