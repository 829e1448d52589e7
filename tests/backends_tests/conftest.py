"""Fixtures that the backends' tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage.backends.contract import BuildContext


@pytest.fixture
def context(tmp_path: Path) -> BuildContext:
    """A build context with folders of its own and two threads."""
    return BuildContext(tmp_path / "cache", tmp_path / "work", num_threads=2)
