"""Lists of arrays as folders of ``.npy`` files: test data and weights that processes share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Arrays = list[NDArray[np.generic]]

LEAST_MAPPED = 1 << 16
"""Bytes of a file. A map takes whole pages, and one of a list that the system keeps short."""


def save_arrays(folder: Path, arrays: Sequence[NDArray[np.generic]]) -> None:
    """Write arrays as ``0.float32.npy`` …, by position and dtype; bfloat16, which the format lacks,
    as its bits.

    Parameters
    ----------
    folder : Path
        Made when it is not there.
    arrays : sequence of ndarray
        In the order in which :func:`load_arrays` gives them back.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for index, array in enumerate(arrays):
        name = f"{index}.{array.dtype.name}.npy"
        stored = array if array.dtype.kind != "V" else array.view(np.uint16)
        np.save(folder / name, stored, allow_pickle=False)


def load_arrays(folder: Path, *, mapped: bool = False) -> Arrays:
    """The inverse of :func:`save_arrays`.

    Parameters
    ----------
    folder : Path
        That arrays were saved to.
    mapped : bool
        Whether large ones are mapped, so that processes share what they only read. The files may
        be deleted meanwhile, and are not written to whatever becomes of the arrays.

    Returns
    -------
    list of ndarray
        In the order in which they were saved.
    """
    arrays = []
    for path in sorted(folder.glob("*.npy"), key=lambda path: int(path.name.split(".")[0])):
        large = path.stat().st_size >= LEAST_MAPPED
        array = np.load(path, allow_pickle=False, mmap_mode="c" if mapped and large else None)
        arrays.append(array.view(np.dtype(path.name.split(".")[1])))
    return arrays
