"""The kinds of devices that candidates are measured on: one policy each.

Batches, locks, time limits, processes, and what of a device and of a configuration belongs to a
measurement's key: everything that differs between kinds of devices when something is measured is a
question to a :class:`DevicePolicy`; nothing else in ``cost`` asks what kind a device is. How a
worker process uses a device is the session class that the policy names.

A third kind is one new file here, its line in ``POLICIES``, and, unless it shares the processor's,
its session class in ``cost/worker``; for compiling, see :mod:`collage.backends.devices`.
"""

from __future__ import annotations

from collections.abc import Iterable

from collage.backends.contract import BackendTarget
from collage.backends.contract.errors import TargetError
from collage.backends.devices import DeviceKind, common_device
from collage.cost.device._base import Device, DevicePolicy, LocalDevice
from collage.cost.device.cpu import CpuPolicy, available_cores
from collage.cost.device.cuda import CudaPolicy

__all__ = [
    "CPU_POLICY",
    "CUDA_POLICY",
    "POLICIES",
    "Device",
    "DevicePolicy",
    "LocalDevice",
    "available_cores",
    "policy_for",
    "policy_of",
]

CPU_POLICY, CUDA_POLICY = CpuPolicy(), CudaPolicy()

POLICIES: tuple[DevicePolicy, ...] = (CPU_POLICY, CUDA_POLICY)
"""One for each of :data:`collage.backends.devices.DEVICE_KINDS`."""


def policy_of(kind: DeviceKind) -> DevicePolicy:
    """The policy for a kind of device.

    Raises
    ------
    TargetError
        When nothing can be measured on such a device.

    Examples
    --------
    >>> from collage.backends.devices import CUDA
    >>> policy_of(CUDA) is CUDA_POLICY
    True
    """
    for policy in POLICIES:
        if policy.kind is kind:
            return policy
    raise TargetError(f"nothing can be measured on '{kind.name}' devices", value=kind.name)


def policy_for(targets: Iterable[BackendTarget]) -> DevicePolicy:
    """The policy for the kind of device that targets are for.

    Raises
    ------
    TargetError
        When they are for devices of several kinds.

    Examples
    --------
    >>> from tvm.target import Target
    >>> policy_for([BackendTarget.of("tvm", Target("llvm"))]) is CPU_POLICY
    True
    """
    return policy_of(common_device(targets))
