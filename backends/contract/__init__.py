"""The contract between a backend and everything else: what it says of itself, and what it is asked.

A backend subclasses :class:`ExternalBackend` (it brings a library) or :class:`NativeBackend` (it
compiles through TVM), and has whatever it can do besides as one of the abilities, which are small
protocols: :class:`Tunable`, :class:`BundlesLibraries` and so on. It is known by the name that
:func:`register_backend` files it under; a :class:`BackendTarget` is that name with options and a
device, a :class:`TargetSet` what one module is compiled for. Failures are types of
:mod:`~collage.backends.contract.errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collage._on_demand import on_demand

if TYPE_CHECKING:
    from collage.backends.contract.abilities import (
        BundlesLibraries,
        HoldsMemory,
        JudgesRegions,
        LimitsCapture,
        NeedsRuntime,
        Precompiles,
        PreparesModules,
        PreparesPartitions,
        RefusesPartitions,
        RequiresLibraries,
        RunsElsewhere,
        ShipsLibraries,
        TakesLayouts,
        Tunable,
        TunesOneByOne,
    )
    from collage.backends.contract.backend import (
        PARTITION_ATTR,
        TARGET_ATTR,
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
    from collage.backends.contract.target_set import (
        TargetSet,
        is_external_codegen_for,
        is_native,
        members_of,
    )
    from collage.backends.contract.tensor_backend import TensorBackend


__all__ = [
    "NUM_THREADS_ALL",
    "PARTITION_ATTR",
    "TARGET_ATTR",
    "Availability",
    "Backend",
    "BackendTarget",
    "BuildContext",
    "BundlesLibraries",
    "ExternalBackend",
    "Granularity",
    "HoldsMemory",
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
    "PreparesModules",
    "PreparesPartitions",
    "RefusesPartitions",
    "RequiresLibraries",
    "Roofline",
    "RunsElsewhere",
    "ShipsLibraries",
    "TakesLayouts",
    "TargetSet",
    "TensorBackend",
    "Tunable",
    "TunesOneByOne",
    "Verdict",
    "always",
    "backend_names",
    "get_backend",
    "is_external_codegen_for",
    "is_native",
    "members_of",
    "register_backend",
]

# On demand: the errors are wanted where TVM, which the rest stands on, is not.
__getattr__, __dir__ = on_demand(
    __name__,
    {
        "abilities": (
            "BundlesLibraries",
            "JudgesRegions",
            "HoldsMemory",
            "LimitsCapture",
            "NeedsRuntime",
            "Precompiles",
            "PreparesModules",
            "PreparesPartitions",
            "RefusesPartitions",
            "RequiresLibraries",
            "RunsElsewhere",
            "ShipsLibraries",
            "TakesLayouts",
            "Tunable",
            "TunesOneByOne",
        ),
        "backend": (
            "PARTITION_ATTR",
            "TARGET_ATTR",
            "Backend",
            "ExternalBackend",
            "Granularity",
            "NativeBackend",
        ),
        "context": ("NUM_THREADS_ALL", "BuildContext"),
        "kernels": ("Precision", "Roofline"),
        "patterns": ("Match", "PatternTriple", "Predicate", "Verdict", "always"),
        "registry": ("backend_names", "get_backend", "register_backend"),
        "requirements": ("Availability", "LibraryRequirement"),
        "target": ("BackendTarget",),
        "target_set": ("TargetSet", "is_external_codegen_for", "is_native", "members_of"),
        "tensor_backend": ("TensorBackend",),
    },
)
