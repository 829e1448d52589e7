"""The contract's parts under one name."""

from collage.backends.contract.backend import Backend, ExternalBackend, Granularity
from collage.backends.contract.context import NUM_THREADS_ALL, BuildContext
from collage.backends.contract.patterns import Match, PatternTriple, Predicate, Verdict, always
from collage.backends.contract.requirements import Availability
from collage.backends.contract.requirements import LibraryRequirement as LibraryNeed
from collage.backends.contract.target import BackendTarget

__all__ = [
    "NUM_THREADS_ALL",
    "Availability",
    "Backend",
    "BackendTarget",
    "BuildContext",
    "ExternalBackend",
    "Granularity",
    "LibraryNeed",
    "Match",
    "PatternTriple",
    "Predicate",
    "Verdict",
    "always",
]
