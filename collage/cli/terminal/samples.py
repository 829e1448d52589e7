"""A model's inputs as files."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collage.backends.contract.errors import InputError

if TYPE_CHECKING:
    import numpy as np


UNREADABLE = (
    *(OSError, ValueError, EOFError, SyntaxError, MemoryError, RuntimeError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
"""What numpy and zipfile raise where a file is none of theirs, or some of its bytes changed."""


def read_sample(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of an ``.npz`` file by name.

    Raises
    ------
    InputError
        When it cannot be read, or holds something else.

    Examples
    --------
    >>> import numpy as np
    >>> np.savez("sample.npz", image=np.zeros((1, 3)))
    >>> read_sample(Path("sample.npz"))
    {'image': array([[0., 0., 0.]])}
    """
    import numpy as np

    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            raise InputError(f"cannot read input '{path}': it is no .npz file", value=str(path))
        with found:
            return dict(found)
    except UNREADABLE as error:
        reason = getattr(error, "strerror", None) or "it is no whole .npz file of plain numbers"
        raise InputError(f"cannot read input '{path}': {reason}", value=str(path)) from error
