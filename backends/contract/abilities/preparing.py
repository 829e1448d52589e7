"""What a backend does to modules and to its partitions before they are compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import tvm

from collage.backends.contract.target import BackendTarget


@runtime_checkable
class PreparesModules(Protocol):
    """Has passes that run over the whole module before the search.

    Examples
    --------
    >>> class Mine:
    ...     def module_passes(self, target):
    ...         return [relax.transform.CanonicalizeBindings()]
    >>> isinstance(Mine(), PreparesModules)
    True
    """

    def module_passes(self, target: BackendTarget) -> Sequence[tvm.transform.Pass]:
        """Passes over the normalized module, whose ``main`` keeps its parameters and results.

        All targets are given what they make, so they compute the same: the module is run before and
        after each of them on random inputs, and one that changes the results is left out, which the
        report says. Backends have their turns in the order of their registration.
        """
        ...


@runtime_checkable
class PreparesPartitions(Protocol):
    """Has passes that run over its own partitions before they are compiled.

    Examples
    --------
    >>> class Mine:
    ...     def partition_passes(self, target):
    ...         return [relax.transform.CanonicalizeBindings()]
    >>> isinstance(Mine(), PreparesPartitions)
    True
    """

    def partition_passes(self, target: BackendTarget) -> Sequence[tvm.transform.Pass]:
        """Passes over a module of this backend's partition functions, which keep their symbols,
        parameters and results.

        What they do is part of compiling: whatever is measured, tuned or deployed went through
        them, and is compared with the reference as always.
        """
        ...
