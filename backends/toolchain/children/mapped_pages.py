"""Memory of files that are mapped: given back while nobody reads them, others need it."""

from __future__ import annotations

import ctypes
import mmap
import re
from collections.abc import Iterator
from pathlib import Path

_PROCESS = Path("/proc/self")
"""What Linux tells of this process."""

_WORTH_IT = 64
"""KiB that a mapping holds in memory."""

_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r[w-]-[ps] .*? (/.*)")


def forget_pages(folder: Path) -> None:
    """Let go of what this process holds in memory of files beneath a folder.

    A library's constants, most of which backends have packed once it was called, or a model's
    weights between two uses. Who reads them all the same gets them from the files again: the system
    still has them.

    Parameters
    ----------
    folder : Path
        Of files that are mapped, libraries among them; they may have been deleted meanwhile. What
        this process has written to stays.

    Examples
    --------
    >>> forget_pages(Path.cwd())
    """
    if not hasattr(mmap, "MADV_DONTNEED"):
        return
    advise = ctypes.CDLL(None, use_errno=True).madvise
    for begin, size in _unchanged_mappings(f"{folder.resolve()}/"):
        advise(ctypes.c_void_p(begin), ctypes.c_size_t(size), mmap.MADV_DONTNEED)


def _unchanged_mappings(beneath: str) -> Iterator[tuple[int, int]]:
    """Where files are mapped to be read, and how much of them; not what was written to, as by the
    loader."""
    place: tuple[int, int] | None = None
    held = 0
    for line in told("smaps"):
        if line[0].islower() or line[0].isdigit():
            found = _MAPPING.fullmatch(line)
            inside = found is not None and found[3].startswith(beneath)
            place = None
            if found is not None and inside:
                begin, end = (int(found[number], 16) for number in (1, 2))
                place = (begin, end - begin)
        elif place is not None and line.startswith("Rss:"):
            held = int(line.split()[1])
        elif place is not None and line.startswith("Anonymous:"):
            if held >= _WORTH_IT and line.split()[1] == "0":
                yield place
            place = None


def told(name: str) -> list[str]:
    """Lines of what Linux tells of this process; none elsewhere.

    Parameters
    ----------
    name : str
        For example ``maps``.
    """
    try:
        return (_PROCESS / name).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
