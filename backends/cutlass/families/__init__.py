"""The families of operators, by rising priority of their patterns.

A family is an :class:`OperatorFamily` in a package of its own, whose ``family.py`` has a function
``family()``; its name goes into the table below. It reads a composite into a :class:`KernelSpec`,
lists each :class:`Configuration` that could run it, and renders the :class:`KernelSource`; what is
compiled, timed and linked from these is the frame's, outside of this folder.
"""

from __future__ import annotations

import importlib
from functools import cache

from collage.backends.cutlass.families._base import (
    Configuration,
    KernelSource,
    KernelSpec,
    OperatorFamily,
    Reading,
)

__all__ = [
    "Configuration",
    "KernelSource",
    "KernelSpec",
    "OperatorFamily",
    "Reading",
    "families",
]

_MODULES = ("gemm", "norm", "conv2d", "attention")
"""Packages here; patterns of a later one go before earlier ones."""


@cache
def families() -> tuple[OperatorFamily, ...]:
    """Every family; modules are imported on the first call.

    Examples
    --------
    >>> [family.name for family in families()]
    ['matmul', 'norm', 'conv2d', 'attention']
    """
    made = []
    for module in _MODULES:
        family = importlib.import_module(f"{__name__}.{module}.family").family()
        assert isinstance(family, OperatorFamily)
        made.append(family)
    return tuple(made)
