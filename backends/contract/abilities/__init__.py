"""What a backend may be able to do besides compiling: one small protocol each.

A backend has an ability by having the methods, or, so that a type checker holds it to their
signatures, by naming the protocol among its bases: ``class Mine(ExternalBackend, Tunable)``. Who
wants one asks a set of targets with :func:`~collage.backends.contract.target_set.members_of`, or a
single backend with ``isinstance``.
"""

from collage.backends.contract.abilities.building import Precompiles, Tunable, TunesOneByOne
from collage.backends.contract.abilities.deploying import (
    BundlesLibraries,
    HoldsMemory,
    NeedsRuntime,
    RequiresLibraries,
    ShipsLibraries,
)
from collage.backends.contract.abilities.layouts import TakesLayouts
from collage.backends.contract.abilities.preparing import PreparesModules, PreparesPartitions
from collage.backends.contract.abilities.refusing import (
    JudgesRegions,
    LimitsCapture,
    RefusesPartitions,
    RunsElsewhere,
)

__all__ = [
    "BundlesLibraries",
    "HoldsMemory",
    "JudgesRegions",
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
]
