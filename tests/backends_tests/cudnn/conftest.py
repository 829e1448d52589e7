"""What the tests of cuDNN share."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage.backends.contract import BuildContext
from collage.config import Config


@pytest.fixture
def shared_context(tmp_path: Path) -> BuildContext:
    """A context whose cache outlives the test: the runtime takes seconds to compile."""
    return BuildContext(Config.from_environment().cache_dir, tmp_path / "work")
