"""What a backend's libraries take along, ask for and hold where they run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from tvm import relax

from collage.backends.contract.requirements import LibraryRequirement
from collage.backends.contract.target import BackendTarget


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
    ...     def weight_copies(self, function, target):
    ...         return 1  # packed before the first call
    ...     def workspace_bytes(self, target):
    ...         return 32 << 20
    >>> isinstance(Mine(), HoldsMemory)
    True
    """

    def weight_copies(self, function: relax.Function, target: BackendTarget) -> float:
        """How many bytes it makes of each byte of a partition's weights in the library.

        Parameters
        ----------
        function : relax.Function
            The partition's.
        target : BackendTarget
            Of this backend.

        Returns
        -------
        float
            0 where weights are used as they lie in the library, 1 where they are packed once.
        """
        ...

    def workspace_bytes(self, target: BackendTarget) -> int:
        """The most that its kernels ask for while they run, all partitions together."""
        ...
