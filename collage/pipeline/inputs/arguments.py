"""What callers give ``optimize``, looked at before anything is done."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral
from typing import Any

from collage.backends.contract.errors import (
    MemoryLimitError,
    RestrictionError,
    ShapeError,
    UserError,
)


def require_well_formed(
    shapes: Any,
    pin: Any,
    ban: Any,
    memory_limit_bytes: Any,
    time_budget_sec: Any,
    num_threads: Any,
) -> None:
    """Refuse arguments of another kind than they have to be.

    Parameters
    ----------
    shapes, pin, ban : object
        Mappings by name, or None.
    memory_limit_bytes, num_threads : object
        A positive number, and one that may be 0; or None.
    time_budget_sec : object
        A number, or None.

    Raises
    ------
    ShapeError, RestrictionError, MemoryLimitError, UserError
        For the first that is not.

    Examples
    --------
    >>> import numpy as np
    >>> require_well_formed({"x": (1, 8)}, None, None, np.int64(1 << 30), 10.0, np.int64(2))
    >>> require_well_formed([(1, 8)], None, None, None, None, None)
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.ShapeError: shapes are by input, for example ...
    """
    if shapes is not None and not isinstance(shapes, Mapping):
        raise ShapeError(
            f"shapes are by input, for example {{'x': (1, 3, 224, 224)}}, not a {_kind(shapes)}",
            value=shapes,
        )
    for name, shape in (shapes or {}).items():
        if shape is None:
            raise ShapeError(f"input '{name}' is given no shape; leave it out", value=name)
    for verb, wishes in (("pin", pin), ("ban", ban)):
        if wishes is not None and not isinstance(wishes, Mapping):
            raise RestrictionError(
                f"{verb} is by operator, for example {verb}={{'nn.conv2d': 'onednn'}}, "
                f"not a {_kind(wishes)}",
                value=wishes,
            )
    if memory_limit_bytes is not None and not _is_number(memory_limit_bytes):
        raise MemoryLimitError(
            f"memory_limit_bytes is a number of bytes, for example 256 << 20, "
            f"not {memory_limit_bytes!r}",
            value=memory_limit_bytes,
        )
    if memory_limit_bytes is not None and memory_limit_bytes < 1:
        raise MemoryLimitError(
            f"memory_limit_bytes is {memory_limit_bytes}, and has to be positive",
            value=memory_limit_bytes,
        )
    if time_budget_sec is not None and not _is_number(time_budget_sec):
        raise UserError(
            f"time_budget_sec is a number of seconds, not {time_budget_sec!r}",
            value=time_budget_sec,
        )
    if num_threads is not None and not (
        isinstance(num_threads, Integral) and int(num_threads) >= 0
    ):
        raise UserError(
            f"num_threads is {num_threads!r}, and has to be a number of threads, or 0 for all",
            value=num_threads,
        )


def _kind(value: object) -> str:
    return type(value).__name__


def _is_number(value: Any) -> bool:
    if isinstance(value, bool | str | bytes):
        return False
    try:
        return not math.isnan(value)
    except TypeError:
        return False
