"""A constant's data as an array."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tvm import ir

PLAIN_KINDS = frozenset("biuf")
"""Of numpy's own data types that tensors have; DLPack's and numpy's are the same there."""


def constant_data(constant: ir.GenericConst) -> NDArray[np.generic]:
    """A constant's data, not copied where numpy knows the type: models hold gigabytes of it.

    Of bfloat16 and its like it is a copy. Asked for them by DLPack, numpy raises one error or
    another, depending on its version.

    Parameters
    ----------
    constant : tvm.ir.GenericConst
        A tensor.

    Returns
    -------
    ndarray
        Of the constant's shape; not to be written to.

    Examples
    --------
    >>> from tvm import relax
    >>> constant_data(relax.const([1.0, 2.0]))
    array([1., 2.], dtype=float32)
    """
    if _is_numpys(str(constant.ty.dtype)):
        data = np.from_dlpack(constant.value)
        data.flags.writeable = False
        return data
    copied: NDArray[np.generic] = np.asarray(constant.value.numpy())
    return copied


def _is_numpys(dtype: str) -> bool:
    """Whether it is a type of numpy's own; what extends it is registered under its name as well."""
    try:
        return np.dtype(dtype).kind in PLAIN_KINDS
    except TypeError:
        return False
