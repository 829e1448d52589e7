"""How many calls are timed, as a user says it."""

from __future__ import annotations

import numpy as np

from collage.backends.contract.errors import InputError


def require_calls(repeat: object, warmup: object) -> None:
    """See that what is given are numbers of calls.

    Parameters
    ----------
    repeat, warmup : object
        At least one call is timed, and none need go before it.

    Raises
    ------
    InputError
        When one is no whole number or too small, as where inputs are given by position.

    Examples
    --------
    >>> require_calls([1.5], 3)
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.InputError: repeat must be ...
    """
    for name, count, least in (("repeat", repeat, 1), ("warmup", warmup, 0)):
        if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < least:
            raise InputError(
                f"{name} must be a number of calls, {least} or more, not {_shown(count)}; the "
                "model's inputs are given by name: inputs=[...]",
                value=name,
            )


def _shown(value: object) -> str:
    return str(value) if isinstance(value, int) else f"a {type(value).__name__}"
