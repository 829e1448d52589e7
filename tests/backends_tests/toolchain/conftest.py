"""Fixtures of the tests of compiling itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage.backends.contract import BuildContext


@pytest.fixture
def context(tmp_path: Path) -> BuildContext:
    """As elsewhere, but nothing has been compiled: these tests look at what is."""
    return BuildContext(tmp_path / "cache", tmp_path / "work", num_threads=2)
