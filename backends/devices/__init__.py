"""The kinds of devices that models are compiled for: one file each.

Everything that differs between them when a model is compiled, locked, deployed or loaded is a
question to a :class:`DeviceKind`; nothing else asks whether a target is a CPU's or a GPU's. How
candidates are measured on a kind of device is :mod:`collage.cost.device`, in the same manner.

A third kind is one new file here, one in ``cost/device``, their lines in the two tables
(``DEVICE_KINDS`` and ``POLICIES``), and how TVM lowers for it, a line of ``tvm/backend.py``.
"""

from __future__ import annotations

from collections.abc import Iterable

import tvm

from collage.backends.contract import BackendTarget
from collage.backends.contract.errors import TargetError
from collage.backends.devices._base import DeviceKind
from collage.backends.devices.cpu import CPU, FLUSHED, IEEE
from collage.backends.devices.cuda import CUDA

__all__ = [
    "CPU",
    "CUDA",
    "DEVICE_KINDS",
    "FLUSHED",
    "IEEE",
    "DeviceKind",
    "common_device",
    "device_named",
    "device_of",
]

DEVICE_KINDS: tuple[DeviceKind, ...] = (CPU, CUDA)
"""All of them."""


def device_of(target: tvm.target.Target) -> DeviceKind:
    """The kind of device that a TVM target compiles for.

    Raises
    ------
    TargetError
        When it is none of those supported; lists them.

    Examples
    --------
    >>> device_of(tvm.target.Target("llvm"))
    cpu
    """
    for kind in DEVICE_KINDS:
        if kind.target_kind == target.kind.name:
            return kind
    supported = ", ".join(kind.target_kind for kind in DEVICE_KINDS)
    raise TargetError(
        f"device target '{target.kind.name}' is not supported; supported: {supported}",
        value=target.kind.name,
    )


def device_named(name: str) -> DeviceKind:
    """The kind of device of a name, as backends, logs and bundles give it.

    Raises
    ------
    TargetError
        When there is none of that name; lists those there are.

    Examples
    --------
    >>> device_named("cuda").target_kind
    'cuda'
    >>> device_named("vulkan")
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.TargetError: there is no kind of device 'vulkan'; ...
    """
    for kind in DEVICE_KINDS:
        if kind.name == name:
            return kind
    known = ", ".join(kind.name for kind in DEVICE_KINDS)
    raise TargetError(f"there is no kind of device '{name}'; known: {known}", value=name)


def common_device(targets: Iterable[BackendTarget]) -> DeviceKind:
    """The one kind of device that all targets are for; the CPU where there are none.

    Raises
    ------
    TargetError
        When they are for devices of several kinds.

    Examples
    --------
    >>> cpu = tvm.target.Target("llvm")
    >>> common_device([BackendTarget.of(name, cpu) for name in ("tvm", "onednn")])
    cpu
    """
    kinds = {device_of(target.device) for target in targets}
    if len(kinds) > 1:
        raise TargetError("targets of several kinds of devices cannot be measured together")
    return kinds.pop() if kinds else CPU
