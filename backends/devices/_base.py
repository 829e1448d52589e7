"""What compiling, locking and deploying must know of a kind of device."""

from __future__ import annotations

import platform
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import tvm

from collage.backends.contract import BuildContext, LibraryRequirement


class DeviceKind(ABC):
    """One kind of device; its instances are stateless and there is one of each.

    Attributes
    ----------
    name : str
        TVM's name of the device, for example ``cuda``: what backends refine, and what logs, locks
        and bundles call it.
    target_kind : str
        The kind of TVM target that stands for it.
    lock_poll_sec : float
        How often those look who wait for the device to be free.
    compiles_beside : bool
        Whether compiling leaves alone what is timed on it: not where both take the same cores.
    captures_graphs : bool
        Whether whole models may be captured into a graph of kernels.
    channels_last : bool
        Whether its libraries want images with their channels last, and parallel products combined.
    has_attention : bool
        Whether its libraries run attention as one operator; otherwise it is taken apart.
    folds_quantized : bool
        Whether its libraries want weights that integers stand for as float32, and products of
        bytes as one operator; otherwise ``quantize`` and ``dequantize`` stay around both.
    cuts_splits : bool
        Whether its libraries want slices in the place of a split into a few parts.
    links_kernels : bool
        Whether kernels are compiled one by one, and known again by their text.
    reads_mapped : bool
        Whether kernels read weights that are mapped from files where they lie; otherwise it has a
        copy of them.

    Examples
    --------
    >>> from collage.backends.devices import CPU, CUDA
    >>> CUDA.complete({"arch": "sm_90a"})["arch"], CUDA.compiles_beside, CPU.compiles_beside
    ('sm_90a', True, False)
    >>> CPU.architecture(tvm.target.Target({"kind": "llvm", "mcpu": "znver4"}))
    'znver4'
    """

    name: ClassVar[str]
    target_kind: ClassVar[str]
    lock_poll_sec: ClassVar[float]
    compiles_beside: ClassVar[bool] = True
    captures_graphs: ClassVar[bool] = False
    channels_last: ClassVar[bool] = False
    has_attention: ClassVar[bool] = False
    folds_quantized: ClassVar[bool] = False
    cuts_splits: ClassVar[bool] = False
    links_kernels: ClassVar[bool] = False
    reads_mapped: ClassVar[bool] = False

    @property
    def niceness(self) -> int:
        """By how much those leave the cores to others who compile or tune what nobody waits for.

        What is waited for is whatever process times candidates, and whoever compiles the first
        whole model: as many compilers as there are cores, of this search and of others on the same
        machine, would make it take several times as long. Where what is timed takes the cores,
        nothing else runs meanwhile.
        """
        return 10 if self.compiles_beside else 0

    def __repr__(self) -> str:
        return self.name

    def loops_over_steps(self, products: int, *, rounds_states: bool) -> bool:
        """Whether TVM's kernels run the steps of a recurrent layer; otherwise they are written out.

        Parameters
        ----------
        products : int
            Multiply-adds of one step in one direction.
        rounds_states : bool
            Whether states are rounded to 256 steps before they are multiplied.

        Returns
        -------
        bool
            True unless a kind of device knows better.
        """
        return True

    @abstractmethod
    def any_target(self) -> tvm.target.Target:
        """A target to register patterns for, which needs no such device here."""

    @abstractmethod
    def complete(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """A target's attributes with those that the user left to this machine.

        Raises
        ------
        TargetError
            When this machine cannot tell.
        """

    @abstractmethod
    def architecture(self, target: tvm.target.Target) -> str:
        """The name of what a target compiles for, for example ``sm_90a``."""

    def host_target(self, target: tvm.target.Target) -> tvm.target.Target:
        """What the processor's part of the code is compiled for: the target's own host, or any, if
        a device does the work."""
        return target.host or tvm.target.Target("llvm")

    def machine(self, target: tvm.target.Target) -> str:
        """The machine that the processor's part of the code is for, as ``uname`` calls it."""
        triple = str(self.host_target(target).attrs.get("mtriple", ""))
        name = triple.partition("-")[0]
        return {"": platform.machine(), "arm64": "aarch64", "amd64": "x86_64"}.get(name, name)

    @abstractmethod
    def is_here(self) -> bool:
        """Whether this machine has such a device that TVM can use."""

    @abstractmethod
    def runtime_device(self) -> tvm.runtime.Device:
        """The device of this kind that models run on: the first."""

    def lock_name(self, index: int = 0) -> str:
        """What the lock of a device of this machine is called: searches on different ones do not
        wait for each other.
        """
        return self.name

    def required_libraries(self) -> tuple[LibraryRequirement, ...]:
        """What every library for it needs from the machine it runs on."""
        return ()

    def prepare_compiler(self, context: BuildContext) -> None:  # noqa: B027 (often there is nothing)
        """Load what TVM's compiler needs for such a device, before anything is compiled."""

    @contextmanager
    def compiling(
        self, target: tvm.target.Target, context: BuildContext
    ) -> Iterator[tvm.target.Target]:
        """While this is entered, TVM can compile for the device: the target to compile for.

        Parameters
        ----------
        target : tvm.target.Target
            Of this kind.
        context : BuildContext
            Compiler and cache folder.

        Yields
        ------
        tvm.target.Target
            The target itself, unless a kind of device adds to it.
        """
        yield target

    def manifest_fields(self, target: tvm.target.Target) -> dict[str, str]:
        """What a bundle's manifest says of the device: ``device``, and ``arch`` where it counts."""
        return {"device": self.name}

    def denormals(self, context: BuildContext) -> str:
        """What kernels do with denormal numbers, ``flushed`` or ``ieee``; empty where nothing is
        said of it."""
        return ""

    def threads(self, context: BuildContext) -> Path | None:
        """The library of the threads that kernels share, to be linked before all others; None
        where what they are written with has its own."""
        return None

    def facts(self, arch: str, context: BuildContext) -> dict[str, Any] | None:
        """What the times of kernels depend on: the device of an architecture that is here, by its
        name and more; None where there is none.

        Parameters
        ----------
        arch : str
            As :meth:`architecture` gives it.
        context : BuildContext
            May know the device already.

        Returns
        -------
        dict or None
            For the records of what was found.
        """
        return {"name": arch}

    def unfit(self, arch: str) -> str:
        """Why what was compiled for an architecture cannot run here; empty when it can.

        It reads on after the name of what was compiled.
        """
        return ""
