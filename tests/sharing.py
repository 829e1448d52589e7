"""Which files of tests one process runs, where several share the work."""

from __future__ import annotations

import functools
from pathlib import Path

from xdist.scheduler import LoadFileScheduling

SHARED = ": Optimized"
"""In a file's text where its tests ask for the one real search of ``tests/collage_tests``."""


@functools.cache
def asks_for_it(file: Path) -> bool:
    """Whether tests of a file share what takes a minute to make."""
    return SHARED in file.read_text(encoding="utf-8")


class FilesThatShare(LoadFileScheduling):  # type: ignore[misc]
    """By file; those that share a session's dear fixture go to one process, which makes it once."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return SHARED if asks_for_it(self.config.rootpath / file) else file
