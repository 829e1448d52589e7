"""Seeded inputs for trials."""

from __future__ import annotations

import numpy as np

from collage.tensor_info import TensorInfo


def random_array(info: TensorInfo, seed: int) -> np.ndarray:
    """Seeded data of a tensor's shape: standard normal floats, 0 or 1 for integers and booleans.

    Parameters
    ----------
    info : TensorInfo
        Its shape and dtype.
    seed : int
        Of numpy's generator.

    Returns
    -------
    ndarray
        The same for equal seeds.

    Examples
    --------
    >>> random_array(TensorInfo((6,), "int64", "tokens"), seed=0)
    array([1, 1, 1, 0, 0, 0])
    """
    rng = np.random.default_rng(seed)
    if "float" in info.dtype:  # numpy does not take bfloat16 for one
        return rng.standard_normal(info.shape).astype(info.dtype)
    return rng.integers(0, 2, info.shape).astype(info.dtype)
