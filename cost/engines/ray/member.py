"""A node as it is known: its devices, its hosts, and what speaks against measuring there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from collage.backends.contract.errors import ProtocolError
from collage.cost.device import Device, DevicePolicy
from collage.cost.engines.ray.cluster import ANNOUNCED, Node
from collage.cost.engines.ray.link import Link
from collage.cost.engines.ray.messages import Probe
from collage.cost.measure.engine import WorkerInfo
from collage.cost.measure.versions import differences
from collage.cost.processes.protocol import decode

MOST_HOSTS = 5
"""Hosts that may be lost on one node before it is left out."""


def announcement(device: Device) -> str:
    """The custom resource by which a node says that it has a device.

    Where any node announces one, devices are timed on only where they are announced, and Ray counts
    how many may be at work: ``ray start --resources '{"<announcement>": 1}'``.

    Examples
    --------
    >>> announcement(Device("cpu", "Some CPU", cores=4, features="0123"))
    'collage:cpu-...'
    """
    digest = hashlib.sha256(repr(device).encode()).hexdigest()[:12]
    return f"{ANNOUNCED}{device.kind}-{digest}"


@dataclass
class Member:
    """A node, what is known of it, and its hosts.

    Attributes
    ----------
    node : Node
        As Ray has it.
    probe : object
        The look at it that is under way, or None.
    found : list of WorkerInfo
        Its devices, as it finds them itself.
    builder, timers
        Hosts, where it has them.
    hosts_lost : int
        In a row, none of which did anything.
    again_at : float
        When the next host may be started.
    """

    node: Node
    probe: Any
    found: list[WorkerInfo] = field(default_factory=list)
    builder: Link | None = None
    timers: list[Link] = field(default_factory=list)
    hosts_lost: int = 0
    again_at: float = 0.0

    @property
    def links(self) -> list[Link]:
        """All hosts."""
        return [*([self.builder] if self.builder else []), *self.timers]

    def harvest(self, ray: Any) -> None:
        """Take in what the probe found, once it did."""
        if self.probe is None:
            return
        try:
            ready, _ = ray.wait([self.probe], timeout=0.0)
            if not ready:
                return
            answer = ray.get(self.probe)
            if isinstance(answer, str):
                self.found = [WorkerInfo(self.node.name, self.node.address, reason=answer)]
            else:
                probe: Probe = decode(answer, Probe)
                self.found = probe.named(self.node.name, self.node.address)
        except (ray.exceptions.RayError, ConnectionError, ProtocolError) as err:
            reason = f"it cannot be looked at: {str(err).strip().splitlines()[0]}"
            self.found = [WorkerInfo(self.node.name, self.node.address, reason=reason)]
        self.probe = None


@dataclass(frozen=True)
class Wanted:
    """What a node must have to be measured on.

    Attributes
    ----------
    policy : DevicePolicy
        Of the kind of device.
    versions : mapping of str to str
        What is installed where the search runs.
    device : Device or None
        What is measured on, once that is known.
    announcing : bool
        Whether any node says by a resource which device it has.
    """

    policy: DevicePolicy
    versions: Mapping[str, str]
    device: Device | None
    announcing: bool

    def judged(self, member: Member) -> list[WorkerInfo]:
        """Every device of a node, with what speaks against it."""
        if member.probe is not None:
            name, address = member.node.name, member.node.address
            return [WorkerInfo(name, address, reason="it has not answered yet")]
        return [
            info if info.reason else replace(info, reason=self._objection(info, member))
            for info in member.found
        ]

    def _objection(self, info: WorkerInfo, member: Member) -> str:
        """What speaks against a device that its own node finds usable."""
        if different := differences(info.versions, self.versions):
            return f"other versions: {different}"
        if info.device is None:
            return "it has no such device"
        if self.device is not None and info.device != self.device:
            unlike = _unlike(info.device, self.device)
            return f"it is another device than what is measured on: {unlike}"
        if not self.policy.has_context and not member.node.cpus:
            return "Ray counts no cores there"
        if self.announcing and announcement(info.device) not in member.node.announced:
            return f"it does not announce '{announcement(info.device)}', and other nodes do"
        if member.hosts_lost >= MOST_HOSTS:
            return f"{member.hosts_lost} actors were lost there"
        return ""


def _unlike(device: Device, wanted: Device) -> str:
    named = ((name, getattr(device, name), getattr(wanted, name)) for name in vars(wanted))
    return ", ".join(f"{name} {a!r} and not {b!r}" for name, a, b in named if a != b)
