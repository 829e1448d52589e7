"""Lists of arrays as folders of ``.npy`` files: test data and weights that processes share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Arrays = list[NDArray[np.generic]]


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


def load_arrays(folder: Path) -> Arrays:
    """The inverse of :func:`save_arrays`."""
    arrays = []
    for path in sorted(folder.glob("*.npy"), key=lambda path: int(path.name.split(".")[0])):
        array = np.load(path, allow_pickle=False)
        arrays.append(array.view(np.dtype(path.name.split(".")[1])))
    return arrays
