"""What a backend may be able to do besides compiling: one small protocol each.

A backend has an ability by having the methods, or, so that a type checker holds it to their
signatures, by naming the protocol among its bases: ``class Mine(ExternalBackend, Tunable)``. Who
wants one asks a set of targets with :func:`~collage.backends.contract.target_set.members_of`, or a
single backend with ``isinstance``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import tvm
from tvm import relax

from collage.backends.contract.context import BuildContext
from collage.backends.contract.patterns import Verdict
from collage.backends.contract.requirements import LibraryRequirement
from collage.backends.contract.target import BackendTarget

if TYPE_CHECKING:
    from collage.backends.toolchain.native import Compilation


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

        Parameters
        ----------
        target : BackendTarget
            With this backend's options.
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

        Parameters
        ----------
        target : BackendTarget
            With this backend's options.
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

        Parameters
        ----------
        target : BackendTarget
            With this backend's options.
        """
        ...


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
        """
        ...


@runtime_checkable
class Precompiles(Protocol):
    """Has sources that every one of its libraries takes in, such as a runtime.

    Examples
    --------
    >>> from collage.backends.contract import get_backend, members_of
    >>> import tvm
    >>> target = BackendTarget.of("onednn", tvm.target.Target("llvm"))
    >>> [backend.name for backend, _ in members_of(Precompiles, [target])]
    ['onednn']
    """

    def compilations(self, target: BackendTarget, context: BuildContext) -> Sequence[Compilation]:
        """What ``codegen`` compiles whatever the functions are.

        Begun in the background when a search begins; ``codegen`` compiles what is not there, and
        what fails is reported there.

        Parameters
        ----------
        target : BackendTarget
            With this backend's options.
        context : BuildContext
            Where to build.
        """
        ...


@runtime_checkable
class Tunable(Protocol):
    """Tries things out on the device before it compiles.

    A search hands it all of its candidates at once, before it builds them one by one. A process
    that begins to use a GPU holds a lock of the driver for a quarter of a second (of an H200's,
    release 580), and every other process waits: one for each candidate is what a search must not
    start.

    Examples
    --------
    >>> class Mine:
    ...     def tune(self, functions, target, context):
    ...         pass  # Times kernels and keeps choices in a collage.backends.storage.TuningStore.
    >>> isinstance(Mine(), Tunable)
    True
    """

    def tune(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> None:
        """Choose what runs each function, and keep the choices where ``codegen`` finds them.

        A choice is best kept as soon as it is made, so that a call that is broken off was not in
        vain. Where there is no device to try things out on, there is nothing to do.

        Parameters
        ----------
        functions : sequence of relax.Function
            As ``codegen`` gets them, of any number of modules: symbols may repeat.
        target : BackendTarget
            With this backend's options.
        context : BuildContext
            Where to build and what to remember choices in.

        Raises
        ------
        CodegenError
            When there is none for a function, after all others were tuned. Compiling that function
            fails for the same reason.
        """
        ...


@runtime_checkable
class BundlesLibraries(Protocol):
    """Links against shared libraries that a bundle takes along.

    Examples
    --------
    >>> class Mine:
    ...     def shared_libraries(self, target):
    ...         return [Path("/opt/fast/libfast.so")]
    >>> isinstance(Mine(), BundlesLibraries)
    True
    """

    def shared_libraries(self, target: BackendTarget) -> Sequence[Path]:
        """The libraries to link against and to ship in the bundle's ``lib/``."""
        ...


@runtime_checkable
class ShipsLibraries(Protocol):
    """Has entries that open libraries by themselves, or whose libraries open others: plugins.

    Examples
    --------
    >>> class Mine:
    ...     def companion_libraries(self, target):
    ...         return [Path("/opt/fast/libfast_cpu_plugin.so")]
    >>> isinstance(Mine(), ShipsLibraries)
    True
    """

    def companion_libraries(self, target: BackendTarget) -> Sequence[Path]:
        """The libraries to ship in the bundle's ``lib/`` that nothing is linked against."""
        ...


@runtime_checkable
class RequiresLibraries(Protocol):
    """Links against shared libraries that are too large, or too bound to a driver, to ship.

    Examples
    --------
    >>> class Mine:
    ...     def required_libraries(self, target):
    ...         place = Path("/opt/fast/libfast.so.1")
    ...         return [LibraryRequirement("libfast.so.1", "1.2", "fast", place)]
    >>> isinstance(Mine(), RequiresLibraries)
    True
    """

    def required_libraries(self, target: BackendTarget) -> Sequence[LibraryRequirement]:
        """The libraries to link against that the machine must have.

        The bundle's manifest lists them; loading finds them, or names what is missing.
        """
        ...


@runtime_checkable
class NeedsRuntime(Protocol):
    """Has partitions that something besides the linked library runs.

    Examples
    --------
    >>> class Mine:
    ...     def runtime(self, target):
    ...         return "fast-engine"
    ...     def load_runtime(self, name):
    ...         import fast_engine
    >>> isinstance(Mine(), NeedsRuntime)
    True
    """

    def runtime(self, target: BackendTarget) -> str:
        """The name of what runs its partitions; empty when nothing more is needed.

        The bundle's manifest has it, and loading hands it to :meth:`load_runtime`.
        """
        ...

    def load_runtime(self, name: str) -> None:
        """Make ready what :meth:`runtime` named, before a library is loaded.

        Raises
        ------
        BackendUnavailableError
            When it is not installed here.
        """
        ...


@runtime_checkable
class HoldsMemory(Protocol):
    """Holds more memory than its partitions' arguments, constants and intermediate results.

    Examples
    --------
    >>> class Mine:
    ...     def weight_copies(self, target):
    ...         return 1  # packed before the first call
    ...     def workspace_bytes(self, target):
    ...         return 32 << 20
    >>> isinstance(Mine(), HoldsMemory)
    True
    """

    def weight_copies(self, target: BackendTarget) -> int:
        """How many copies of its partitions' weights it makes of those in the library."""
        ...

    def workspace_bytes(self, target: BackendTarget) -> int:
        """The most that its kernels ask for while they run, all partitions together."""
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
