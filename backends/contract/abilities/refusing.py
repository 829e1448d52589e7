"""What a backend may not take, or not everywhere, although its patterns match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from tvm import relax

from collage.backends.contract.context import BuildContext
from collage.backends.contract.patterns import Verdict
from collage.backends.contract.target import BackendTarget


@runtime_checkable
class JudgesRegions(Protocol):
    """Refuses partitions for what only a whole region shows.

    Examples
    --------
    >>> class Mine:
    ...     def accepts_region(self, operators, target):
    ...         return Verdict.yes() if len(operators) > 1 else Verdict.no("a single operator")
    >>> isinstance(Mine(), JudgesRegions), Mine().accepts_region([], None).reason
    (True, 'a single operator')
    """

    def accepts_region(self, operators: Sequence[relax.Expr], target: BackendTarget) -> Verdict:
        """Whether operators that the patterns accepted one by one may be a partition together.

        Asked whenever composites form a partition, a single one included.

        Parameters
        ----------
        operators : sequence of relax.Expr
            The values of the partition's bindings, in topological order.
        target : BackendTarget
            With this backend's options.

        Returns
        -------
        Verdict
            Yes, or no with the reason.
        """
        ...


@runtime_checkable
class RefusesPartitions(Protocol):
    """Has a library that alone can tell, while it compiles, what it does not take.

    Examples
    --------
    >>> class Mine:
    ...     def refusals(self, functions, target, context):
    ...         large = [f for f in functions if len(f.params) > 8]
    ...         return {f.attrs["global_symbol"]: "takes 8 inputs at the most" for f in large}
    >>> isinstance(Mine(), RefusesPartitions)
    True
    """

    def refusals(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> Mapping[str, str]:
        """Which functions the library would refuse to compile, by symbol with its reason.

        Asked before whole models are compiled; refused partitions are undone and run by TVM. Work
        done here is expected to be kept for ``codegen``.

        Parameters
        ----------
        functions : sequence of relax.Function
            As ``codegen`` gets them.
        target : BackendTarget
            With this backend's options.
        context : BuildContext
            Where to build and what to remember choices in.

        Returns
        -------
        Mapping[str, str]
            Empty when the library takes them all.
        """
        ...


@runtime_checkable
class RunsElsewhere(Protocol):
    """Compiles for a machine that this one is not: ahead of time.

    Examples
    --------
    >>> class Mine:
    ...     def unfit_here(self, target):
    ...         return "its code is for a board"
    >>> isinstance(Mine(), RunsElsewhere)
    True
    """

    def unfit_here(self, target: BackendTarget) -> str:
        """Why this machine cannot run what is compiled for a target; empty where it can.

        Its candidates can be estimated then, compiled and exported, but not measured here.
        """
        ...


@runtime_checkable
class LimitsCapture(Protocol):
    """Has entry points that, for some targets, cannot be captured into a CUDA graph.

    Those of other backends can, after one call.

    Examples
    --------
    >>> class Mine:
    ...     def cuda_graph_safe(self, target):
    ...         return False  # It waits for the device in between.
    >>> isinstance(Mine(), LimitsCapture)
    True
    """

    def cuda_graph_safe(self, target: BackendTarget) -> bool:
        """Whether this target's entry points may be captured into a CUDA graph after one call."""
        ...
