"""What is there now, for tests that look whether something was left."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import psutil


def children() -> set[int]:
    """The processes below this one that live."""
    return {child.pid for child in psutil.Process().children(recursive=True) if _lives(child)}


def new_threads(known: set[threading.Thread]) -> set[threading.Thread]:
    """The threads that were not there before."""
    return {thread for thread in threading.enumerate() if thread not in known}


def candidate_libraries() -> set[Path]:
    """In the folder for temporary files; caches and locks of devices are of use to others."""
    return set(Path(tempfile.gettempdir()).glob("collage-*/**/model.so"))


def _lives(child: psutil.Process) -> bool:
    try:
        return bool(child.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
