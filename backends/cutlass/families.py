"""The families of operators, by rising priority of their patterns."""

from __future__ import annotations

import importlib
from functools import cache

from collage.backends.cutlass.family import OperatorFamily

MODULES = ("matmul", "norm", "conv2d", "attention")
"""Modules of this package with a ``family()``; patterns of a later one go before earlier ones."""


@cache
def families() -> tuple[OperatorFamily, ...]:
    """Every family; modules are imported on the first call."""
    made = []
    for module in MODULES:
        family = importlib.import_module(f"collage.backends.cutlass.{module}").family()
        assert isinstance(family, OperatorFamily)
        made.append(family)
    return tuple(made)
