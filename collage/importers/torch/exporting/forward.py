"""Another ``forward`` for a module, for as long as it is exported."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced_forward(module: Any, function: Callable[..., Any]) -> Iterator[None]:
    """A module that runs another function, with its own one's signature; afterwards as it was.

    Parameters
    ----------
    module : torch.nn.Module
        Its class keeps its ``forward``.
    function : callable
        Takes what the module's ``forward`` takes.

    Yields
    ------
    None
        Meanwhile the module runs it.

    Examples
    --------
    >>> import torch
    >>> relu = torch.nn.ReLU()
    >>> with replaced_forward(relu, lambda x: x + 1):
    ...     float(relu(torch.zeros(())))
    1.0
    >>> float(relu(torch.zeros(()))), "forward" in vars(relu)
    (0.0, False)
    """
    own = vars(module).get("forward")
    module.forward = functools.wraps(module.forward)(function)
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own
