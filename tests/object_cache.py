"""Cache folders of tests: a new one each, but for compiled objects, which all of them share."""

from __future__ import annotations

from pathlib import Path

from collage.config import Config

NAMED_BY_CONTENT = ("objects", "pools", "imports", "fatbins", "kernels", "locks")
"""What lies here is named by all that it is made of, and tells nothing of choices or times."""


def cache_with_objects(folder: Path) -> Path:
    """A new cache folder that knows what this user has compiled, and no more.

    A test of compiling itself, or of what a cache holds, wants an empty one instead.

    Parameters
    ----------
    folder : Path
        Where it is made, if it is not there.

    Returns
    -------
    Path
        ``<folder>/cache``.
    """
    cache = folder / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    for name in NAMED_BY_CONTENT:
        shared = Config.from_environment().cache_dir / name
        shared.mkdir(parents=True, exist_ok=True)
        if not (cache / name).is_symlink():
            (cache / name).symlink_to(shared)
    return cache
