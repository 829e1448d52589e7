"""Public names that a package imports when they are first asked for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def on_demand(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's ``__getattr__`` and ``__dir__``; type checkers are told by imports of their own.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    homes : mapping of str to sequence of str
        By module below it, the names that are taken from there; the module itself is the name
        where there are none.

    Returns
    -------
    tuple[Callable[[str], Any], Callable[[], list[str]]]
        ``__getattr__``, which imports a name's module when it is asked for, and ``__dir__``.

    Examples
    --------
    >>> get, names = on_demand("collage.cost", {"base": ["Cost", "CostStatus"]})
    >>> get("CostStatus").VALID
    <CostStatus.VALID: 'valid'>
    """
    modules = {name: module for module, names in homes.items() for name in names or (module,)}

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        module = importlib.import_module(f"{package}.{modules[name]}")
        return getattr(module, name) if homes[modules[name]] else module

    return get, lambda: sorted({*vars(sys.modules[package]), *modules})
