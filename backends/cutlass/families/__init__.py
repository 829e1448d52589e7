"""The families of operators, by rising priority of their patterns."""

from __future__ import annotations

import importlib
from functools import cache

from collage.backends.cutlass.families._base import OperatorFamily

_MODULES = ("gemm", "norm", "conv2d", "attention")
"""Packages here; patterns of a later one go before earlier ones."""


@cache
def families() -> tuple[OperatorFamily, ...]:
    """Every family; modules are imported on the first call."""
    made = []
    for module in _MODULES:
        family = importlib.import_module(f"{__name__}.{module}.family").family()
        assert isinstance(family, OperatorFamily)
        made.append(family)
    return tuple(made)
