"""Inputs that a model writes into: what is new is written into what the caller gave."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm

from collage.backends.contract.errors import InputError
from collage.bundle.calling.tensors import is_torch


def require_writable(name: str, value: Any) -> None:
    """See that what is given for an input can be written into.

    Parameters
    ----------
    name : str
        The input's.
    value : array or tensor
        What was given.

    Raises
    ------
    InputError
        When it cannot.

    Examples
    --------
    >>> require_writable("cache", np.float32(0))
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.InputError: the model writes into its input 'cache', and \
what is given for it cannot be written: give a numpy array, or a tensor of PyTorch's or TVM's
    """
    if isinstance(value, np.ndarray) and value.flags.writeable:
        return
    if is_torch(value) or isinstance(value, tvm.runtime.Tensor):
        return
    raise InputError(
        f"the model writes into its input '{name}', and what is given for it cannot be written: "
        "give a numpy array, or a tensor of PyTorch's or TVM's",
        value=type(value).__name__,
    )


def write(value: Any, new: tvm.runtime.Tensor) -> None:
    """Let an input hold something else.

    Parameters
    ----------
    value : array or tensor
        What the caller gave.
    new : tvm.runtime.Tensor
        What is to be in it.

    Examples
    --------
    >>> given = np.zeros(2, "float32")
    >>> write(given, tvm.runtime.tensor(np.ones(2, "float32")))
    >>> given.tolist()
    [1.0, 1.0]
    """
    if isinstance(value, np.ndarray):
        np.copyto(value, new.numpy())
    elif isinstance(value, tvm.runtime.Tensor):
        new.copyto(value)
    else:
        import torch

        with torch.inference_mode(value.is_inference()), torch.no_grad():
            value.copy_(torch.from_dlpack(new))
