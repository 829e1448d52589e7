"""The contract between a backend and everything else: what it says of itself, and what it is asked.

A backend subclasses :class:`ExternalBackend` (it brings a library) or :class:`NativeBackend` (it
compiles through TVM), and has whatever it can do besides as one of the abilities, which are small
protocols: :class:`Tunable`, :class:`BundlesLibraries` and so on. It is known by the name that
:func:`register_backend` files it under; a :class:`BackendTarget` is that name with options and a
device, a :class:`TargetSet` what one module is compiled for. Failures are types of
:mod:`~collage.backends.contract.errors`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collage.backends.contract.abilities import (
        BundlesLibraries,
        JudgesRegions,
        LimitsCapture,
        NeedsRuntime,
        Precompiles,
        RefusesPartitions,
        RequiresLibraries,
        Tunable,
    )
    from collage.backends.contract.backend import (
        PARTITION_ATTR,
        Backend,
        ExternalBackend,
        Granularity,
        NativeBackend,
    )
    from collage.backends.contract.context import NUM_THREADS_ALL, BuildContext
    from collage.backends.contract.kernels import Precision, Roofline
    from collage.backends.contract.patterns import Match, PatternTriple, Predicate, Verdict, always
    from collage.backends.contract.registry import backend_names, get_backend, register_backend
    from collage.backends.contract.requirements import Availability, LibraryRequirement
    from collage.backends.contract.target import BackendTarget
    from collage.backends.contract.target_set import TargetSet, is_native, members_of

_HOMES = {
    "Availability": "requirements",
    "Backend": "backend",
    "BackendTarget": "target",
    "BuildContext": "context",
    "BundlesLibraries": "abilities",
    "ExternalBackend": "backend",
    "Granularity": "backend",
    "JudgesRegions": "abilities",
    "LibraryRequirement": "requirements",
    "LimitsCapture": "abilities",
    "Match": "patterns",
    "NUM_THREADS_ALL": "context",
    "NativeBackend": "backend",
    "NeedsRuntime": "abilities",
    "PARTITION_ATTR": "backend",
    "PatternTriple": "patterns",
    "Precision": "kernels",
    "Precompiles": "abilities",
    "Predicate": "patterns",
    "RefusesPartitions": "abilities",
    "RequiresLibraries": "abilities",
    "Roofline": "kernels",
    "TargetSet": "target_set",
    "Tunable": "abilities",
    "Verdict": "patterns",
    "always": "patterns",
    "backend_names": "registry",
    "get_backend": "registry",
    "is_native": "target_set",
    "members_of": "target_set",
    "register_backend": "registry",
}

__all__ = [
    "NUM_THREADS_ALL",
    "PARTITION_ATTR",
    "Availability",
    "Backend",
    "BackendTarget",
    "BuildContext",
    "BundlesLibraries",
    "ExternalBackend",
    "Granularity",
    "JudgesRegions",
    "LibraryRequirement",
    "LimitsCapture",
    "Match",
    "NativeBackend",
    "NeedsRuntime",
    "PatternTriple",
    "Precision",
    "Precompiles",
    "Predicate",
    "RefusesPartitions",
    "RequiresLibraries",
    "Roofline",
    "TargetSet",
    "Tunable",
    "Verdict",
    "always",
    "backend_names",
    "get_backend",
    "is_native",
    "members_of",
    "register_backend",
]


def __getattr__(name: str) -> Any:
    # On demand: the errors are wanted where TVM, which the rest stands on, is not.
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
