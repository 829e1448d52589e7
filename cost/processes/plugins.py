"""How a worker process gets to know backends that were registered at run time.

Built-in backends and those of entry points are found by the registry in any process. One
that a program registered itself is named by its class, ``module:Class``, which the worker imports,
instantiates and registers; so the class must live in an importable module and take no arguments.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from importlib import metadata

from collage.backends.contract import BackendTarget
from collage.backends.contract.errors import TargetError
from collage.backends.contract.registry import (
    BUILTIN,
    ENTRY_POINT_GROUP,
    backend_names,
    get_backend,
    register_backend,
)


def plugins_for(targets: Iterable[BackendTarget]) -> list[str]:
    """What workers must import to compile for these targets.

    Raises
    ------
    TargetError
        When a backend's class cannot be imported by another process.
    """
    found = found_everywhere()
    plugins = set()
    for target in targets:
        if target.backend in found:
            continue
        name, kind = target.backend, type(target.implementation)
        if kind.__module__ == "__main__" or "<locals>" in kind.__qualname__:
            raise TargetError(
                f"backend '{name}' cannot be measured: its class {kind.__qualname__} must stand at "
                "the top level of an importable module, for measuring processes import it",
                value=name,
            )
        plugins.add(_plugin(name))
    return sorted(plugins)


def found_everywhere() -> set[str]:
    """Names of the backends that any process with the same packages finds by itself."""
    return {*BUILTIN, *(entry.name for entry in metadata.entry_points(group=ENTRY_POINT_GROUP))}


def found_with(plugins: Iterable[str]) -> list[str]:
    """Names of this process's backends that another one with these plugins has, too."""
    everywhere, named = found_everywhere(), set(plugins)
    return [name for name in backend_names() if name in everywhere or _plugin(name) in named]


def _plugin(name: str) -> str:
    kind = type(get_backend(name))
    return f"{kind.__module__}:{kind.__qualname__}"


def load_plugins(plugins: Iterable[str]) -> None:
    """Register the backends that :func:`plugins_for` named."""
    for plugin in plugins:
        module, _, attribute = plugin.partition(":")
        kind = getattr(importlib.import_module(module), attribute)
        if kind.name not in backend_names():
            register_backend(kind())
