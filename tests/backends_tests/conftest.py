"""Fixtures that the backends' tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage.backends.contract import BuildContext
from tests.object_cache import cache_with_objects


@pytest.fixture
def context(tmp_path: Path) -> BuildContext:
    """A build context with folders of its own and two threads."""
    return BuildContext(cache_with_objects(tmp_path), tmp_path / "work", num_threads=2)
