"""What measuring must know of a kind of device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from collage.backends.contract import BuildContext
from collage.backends.devices import DeviceKind
from collage.cost.config import MeasureConfig

CONDITION = "; "
"""Comes before each condition in a device's key."""


@dataclass(frozen=True)
class Device:
    """A device's fingerprint; any difference makes measurements incomparable.

    Attributes
    ----------
    kind : str
        The name of a :class:`DeviceKind`.
    name : str
        The model's name, as the system or the driver gives it.
    cores : int
        Cores that this process may use; of a GPU its multiprocessors.
    features : str
        A digest of the instruction-set extensions: the same model may show fewer of them inside a
        virtual machine. Of a GPU its architecture, ``sm_90``.
    driver : str
        ``none`` on a CPU.
    memory_mib : int
        Of a GPU.
    conditions : tuple of str
        What is unusual about how it runs, such as ``power limit 300 W``; usually nothing, so that
        what was measured before conditions were looked at stays comparable.

    Examples
    --------
    >>> gpu = Device("cuda", "NVIDIA H200", 132, "sm_90", driver="CUDA 13.0", memory_mib=143771)
    >>> gpu.features, gpu.cores, gpu.conditions
    ('sm_90', 132, ())
    """

    kind: str
    name: str
    cores: int
    features: str
    driver: str = "none"
    memory_mib: int = 0
    conditions: tuple[str, ...] = ()


@dataclass(frozen=True)
class LocalDevice:
    """A device of this machine.

    Attributes
    ----------
    name : str
        As TVM names it, ``cuda:1``.
    device : Device
        Its fingerprint.
    index : int
        As this process counts those of the kind.
    environment : mapping of str to str
        What a process must have in its environment that is to see no other one.

    Examples
    --------
    >>> LocalDevice("cpu", Device("cpu", "Some CPU", cores=4, features="0123")).environment
    {}
    """

    name: str
    device: Device
    index: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)


class DevicePolicy(ABC):
    """How candidates are measured on a kind of device; its instances are stateless.

    A device that compiling leaves alone (:attr:`DeviceKind.compiles_beside`) is held locked only
    while something runs on it: candidates are timed while others are built, and backends tune
    beside the builders. Any other is held for building, too.

    Attributes
    ----------
    kind : DeviceKind
        What the device is to compiling.
    session : str
        ``module:Class`` of the :class:`collage.cost.worker.session.Session` that a worker opens.
    has_context : bool
        Whether a process that uses the device holds a driver's context, which maps as much memory
        as the device has, keeps an error until it is asked for it, and does not always survive
        being taken down.
    reference_elements, reference_extent : int
        How large the kernels are by which devices are compared: elements of what does not fit into
        a core's or a GPU's caches, and the extent of a matrix product of about a millisecond.

    Examples
    --------
    >>> from collage.cost.device import CPU_POLICY, CUDA_POLICY
    >>> config = MeasureConfig()
    >>> [policy.build_timeout_sec(config) for policy in (CPU_POLICY, CUDA_POLICY)]
    [60.0, 600.0]
    >>> CPU_POLICY.device_key(Device("cpu", "Some CPU", cores=4, features="0123"))
    'Some CPU, 4 cores, isa 0123'
    """

    kind: ClassVar[DeviceKind]
    session: ClassVar[str]
    has_context: ClassVar[bool] = True
    reference_elements: ClassVar[int] = 1 << 24
    reference_extent: ClassVar[int] = 2048

    def gpu(self, device: Device) -> tuple[str, int] | None:
        """What :attr:`BuildContext.gpu` is on a machine with a device; None for one of another kind
        or that is elsewhere.

        Parameters
        ----------
        device : Device
            That is measured on.

        Returns
        -------
        tuple of (str, int) or None
            Name and compute capability.
        """
        del device
        return None

    @abstractmethod
    def detect(self) -> Device:
        """The device of this kind on this machine that is measured on: the first.

        Raises
        ------
        TargetError
            When this machine cannot measure on such a device.
        """

    def all_here(self) -> list[LocalDevice]:
        """All devices of this kind on this machine that may be measured on, the first one first.

        Raises
        ------
        TargetError
            When this machine cannot measure on such a device.
        """
        return [LocalDevice(self.kind.name, self.detect())]

    def device_key(self, device: Device) -> str:
        """What names a device of this kind in the log, with what is unusual about it."""
        return CONDITION.join([self.model_key(device), *device.conditions])

    @abstractmethod
    def model_key(self, device: Device) -> str:
        """What names a device of this kind that runs as usual."""

    def device_from_key(self, key: str, driver: str) -> Device | None:
        """The device that a log names by its key, as far as that can be told from it.

        Parameters
        ----------
        key : str
            As :meth:`device_key` gives it.
        driver : str
            As the log has it.

        Returns
        -------
        Device or None
            None where it cannot be told, which is so unless a kind of device knows better.
        """
        return None

    def others(self, device: LocalDevice) -> str:
        """What computes on a device of this machine that nobody measures on at the moment.

        Takes up to a second; the device should be held meanwhile. Empty when there is nothing, or
        when it cannot be told.
        """
        return ""

    @abstractmethod
    def builders(self) -> int:
        """Builder processes when nobody says how many."""

    @abstractmethod
    def batch_size(self, builders: int) -> int:
        """Workloads that are begun together: enough to keep the builders busy, and little to
        lose."""

    def build_timeout_sec(self, config: MeasureConfig) -> float:
        """Wall time for building one workload."""
        return config.build_timeout_sec

    def run_timeout_sec(self, config: MeasureConfig) -> float:
        """Wall time for checking and timing one workload."""
        return config.run_timeout_sec

    def config_key(self, config: MeasureConfig) -> dict[str, Any]:
        """What of the configuration counts for measurements on such a device, for their keys."""
        return config.key()

    def num_threads(self, context: BuildContext, device: Device) -> int:
        """Threads that count for a kernel's time; 0 where it does not ask how many there are.

        Parameters
        ----------
        context : BuildContext
            Has how many were asked for.
        device : Device
            What it is timed on.

        Returns
        -------
        int
            0 unless a kind of device knows better.
        """
        return 0

    def misfit(self, arch: str, device: Device) -> str:
        """Why what is compiled for an architecture cannot run on a device, wherever that is; empty
        when it can.

        Parameters
        ----------
        arch : str
            As :meth:`DeviceKind.architecture` gives it.
        device : Device
            Of this kind.

        Returns
        -------
        str
            A clause for a message, or an empty string.
        """
        return ""

    def compiler_versions(self) -> Mapping[str, str]:
        """Versions of compilers that take part besides the one of the host."""
        return {}
