"""Who there is in a cluster: nodes are looked at as they come, and get hosts; they may go any time.

What is measured on is one kind of device alone. Nodes that have another one, or on which something
else is installed, are left out, each with the reason.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from collage.backends.contract.errors import MeasurementError, TargetError
from collage.cost.deadline import Deadline
from collage.cost.device import Device, DevicePolicy
from collage.cost.engines.ray.cluster import Cluster, Node
from collage.cost.engines.ray.link import Link
from collage.cost.engines.ray.member import MOST_HOSTS, Member, Wanted, announcement
from collage.cost.engines.ray.messages import HostSettings
from collage.cost.measure.engine import Work, WorkerInfo
from collage.cost.measure.runner import PlaceLostError
from collage.cost.measure.versions import differences, versions_here
from collage.cost.processes.plugins import found_everywhere

_TICK_SEC = 2.0
"""How often nodes are looked for that came or went."""

_AGAIN_SEC = 5.0

_FIRST_SEC = 60.0
"""How long the first look at a fleet waits for slow nodes, once there is one that answered."""

_QUEUE_SEC = 3600.0
"""How long Ray may keep everybody waiting because others use what is asked for."""


class Fleet:
    """The nodes of a cluster for one kind of device.

    Parameters
    ----------
    cluster : Cluster
        Connected by :meth:`start`.
    work : Work
        What hosts are started for.
    patience_sec : float
        How long a host may give no sign of life.
    """

    def __init__(self, cluster: Cluster, work: Work, patience_sec: float) -> None:
        self._cluster, self._work, self._patience_sec = cluster, work, patience_sec
        self._policy = work.policy
        # Plugins come with the orders.
        found = sorted(found_everywhere())
        self._versions = versions_here(work.policy, work.context.cxx, found)
        self._lock = threading.RLock()
        self._members: dict[str, Member] = {}
        self._device = work.device
        self._looked = False
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Connect, and look after nodes until it is closed.

        Raises
        ------
        MeasurementError
            When there is no such cluster.
        """
        with self._lock:
            if self._thread is not None:
                return
            self._cluster.connect()
            self._closing.clear()
            self._looked = False
            self._thread = threading.Thread(target=self._watch, name="ray fleet", daemon=True)
            try:
                self._update()
            except BaseException:
                self._thread = None
                self._cluster.leave()
                raise
            self._thread.start()

    def close(self) -> None:
        """End all hosts and let the cluster go; whoever needs one starts it anew."""
        thread = self._thread
        if thread is None:
            return
        self._closing.set()
        thread.join()
        with self._lock:
            closing = [
                threading.Thread(target=link.close, name=f"close {link.name}")
                for member in self._members.values()
                for link in member.links
            ]
            for one in closing:
                one.start()
            for one in closing:
                one.join()
            self._thread = None
            self._cluster.leave()

    def device(self) -> Device:
        """What is measured on: what was asked for, else what the head has where a node has it
        too, else what most nodes have.

        Raises
        ------
        TargetError
            When no node has such a device.
        MeasurementError
            When no node answers.
        """
        if self._device is None:
            self.start()
            found = [info for info in self._settled() if info.device and not info.reason]
            counted = Counter(info.device for info in found if info.device)
            if not counted:
                raise TargetError(
                    f"no node of Ray's cluster can measure for '{self._policy.kind.target_kind}': "
                    f"{_reasons(self.infos())}",
                    value=self._policy.kind.name,
                )
            own = _own_device(self._policy)
            most = min(counted, key=lambda device: (-counted[device], repr(device)))
            self._device = own if own in counted else most
            self._update()
        assert self._device is not None
        return self._device

    def timers(self, deadline: Deadline | None = None) -> list[Link]:
        """Hosts that time, at least one; in the order of their names.

        Parameters
        ----------
        deadline : Deadline, optional
            How long to wait for them; by default until candidates are given up.

        Raises
        ------
        MeasurementError
            When there is none.
        """
        return self._hosts(lambda member: member.timers, "time on", deadline)

    def builders(self) -> list[Link]:
        """Hosts that build, at least one.

        Raises
        ------
        MeasurementError
            When there is none.
        """
        return self._hosts(lambda member: [member.builder], "build on")

    def builders_now(self) -> list[Link]:
        """Hosts that build and are there at this moment, perhaps none."""
        with self._lock:
            members = list(self._members.values())
        return [link for m in members if (link := m.builder) and _is_there(link)]

    def has_device(self, link: Link) -> bool:
        """Whether the node of a host has a device that is timed on."""
        member = self._members.get(link.node.id)
        return member is not None and bool(member.timers)

    def tunes_anywhere(self) -> bool:
        """Whether any node both builds and has a device."""
        return any(map(self.has_device, self.builders_now()))

    def infos(self) -> list[WorkerInfo]:
        """What is known of every device of every node, with what speaks against it."""
        with self._lock:
            wanted = self._wanted()
            return [info for member in self._members.values() for info in wanted.judged(member)]

    def _hosts(
        self,
        of: Callable[[Member], Iterable[Link | None]],
        what: str,
        deadline: Deadline | None = None,
    ) -> list[Link]:
        limit = self._work.deadline if deadline is None else deadline
        self.device()
        self.start()
        begin = time.monotonic()
        while True:
            with self._lock:
                members = list(self._members.values())
            wanted = [link for member in members for link in of(member) if link and not link.lost]
            found = [link for link in wanted if _is_there(link)]
            waited = time.monotonic() - begin
            if found and (len(found) == len(wanted) or self._looked or waited > _FIRST_SEC):
                self._looked = True
                return sorted(found, key=lambda link: link.name)
            # A node that has not answered yet comes to be wanted, or says why it is of no use.
            is_looked_at = any(member.probe is not None for member in members)
            most = max(self._patience_sec, 2 * _FIRST_SEC) if is_looked_at else self._patience_sec
            if (not wanted and waited > most) or waited > _QUEUE_SEC:
                raise MeasurementError(
                    f"Ray's cluster has no node to {what}: {_reasons(self.infos())}",
                    value=self._cluster.address,
                )
            limit.check()
            time.sleep(0.1)
            if int(waited) != int(time.monotonic() - begin):
                self._update()

    def _settled(self) -> list[WorkerInfo]:
        """What nodes say that have been looked at; waits for them, for the slow ones not long."""
        begin = time.monotonic()
        while time.monotonic() - begin < self._worth_waiting_sec():
            self._work.deadline.check()
            time.sleep(0.1)
            self._update()
        return self.infos()

    def _worth_waiting_sec(self) -> float:
        """How long from the beginning on another node's word is waited for, as things stand."""
        infos = self.infos()
        with self._lock:
            nodes = [member.node for member in self._members.values()]
            is_looked_at = any(member.probe is not None for member in self._members.values())
        if is_looked_at:
            is_any_of_use = any(info.device and not info.reason for info in infos)
            return _FIRST_SEC if is_any_of_use else 2 * _FIRST_SEC
        # A head alone, which has no such thing: those that do may have been killed, and come back.
        has_context = self._policy.has_context
        may_come = not any(node.gpus if has_context else node.cpus for node in nodes)
        return self._patience_sec if may_come else 0.0

    def _watch(self) -> None:
        while not self._closing.wait(_TICK_SEC):
            # Those at work find out themselves that the cluster does not answer; here it may pass.
            with suppress(MeasurementError):
                self._update()

    def _update(self) -> None:
        nodes = {node.id: node for node in self._cluster.nodes()}
        with self._lock:
            for gone in self._members.keys() - nodes.keys():
                for link in self._members.pop(gone).links:
                    link.lose("its node is gone")
            for node in nodes.values():
                member = self._members.get(node.id)
                if member is None:
                    probe = self._cluster.probe(
                        node, self._policy.kind.name, all_gpus=self._policy.has_context
                    )
                    member = self._members[node.id] = Member(node, probe)
                member.harvest(self._cluster.ray)
                self._staff(member)

    def _wanted(self) -> Wanted:
        announcing = any(member.node.announced for member in self._members.values())
        return Wanted(self._policy, self._versions, self._device, announcing)

    def _staff(self, member: Member) -> None:
        """Have the hosts on a node that it is good for."""
        lost = [link for link in member.links if link.lost]
        if lost:
            # One that did something may well be lost by chance; its next one starts at once.
            served = any(link.served for link in lost)
            member.hosts_lost = 0 if served else member.hosts_lost + 1
            member.again_at = time.monotonic() + (0.0 if served else _AGAIN_SEC)
            member.timers = [link for link in member.timers if not link.lost]
            if member.builder is not None and member.builder.lost:
                member.builder = None
        if self._device is None or member.probe is not None:
            return
        if time.monotonic() < member.again_at or member.hosts_lost >= MOST_HOSTS:
            return
        if member.builder is None and (builds := self._builds(member)):
            settings = self._settings(builds)
            member.builder = self._link(member, "builder", settings, {"CPU": float(builds)})
        alike = [info for info in self._wanted().judged(member) if not info.reason]
        if self._policy.has_context:
            alike = alike[: member.node.gpus]
        taken = {link.name for link in member.timers}
        for info in alike:
            if info.name not in taken:
                resources = self._resources_to_time(member.node)
                member.timers.append(
                    self._link(member, "", self._settings(0), resources, info.name)
                )

    def _builds(self, member: Member) -> int:
        """How many candidates a node may compile at once; any that has what is installed here."""
        versions = member.found[0].versions if member.found else {}
        if not versions or differences(versions, self._versions):
            return 0
        wanted = self._work.parallel_builds or member.found[0].builds
        return min(wanted, member.node.cpus)

    def _resources_to_time(self, node: Node) -> Mapping[str, float]:
        assert self._device is not None
        resources = {"GPU": 1.0} if self._policy.has_context else {}
        if (own := announcement(self._device)) in node.announced:
            resources[own] = 1.0
        return resources

    def _settings(self, builds: int) -> HostSettings:
        assert self._device is not None
        context = self._work.context
        return HostSettings(
            *(self._policy.kind.name, self._work.config, context.num_threads, context.cxx),
            *(context.ieee_denormals, context.replay, context.hurried),
            *(builds, self._device),
        )

    def _link(
        self,
        member: Member,
        role: str,
        settings: HostSettings,
        resources: Mapping[str, float],
        name: str = "",
    ) -> Link:
        name = name or f"{member.node.name} {role}"
        patience_sec = self._patience_sec
        return Link(self._cluster, member.node, name, settings, resources, patience_sec, self.start)


def _is_there(link: Link) -> bool:
    try:
        return link.is_ready()
    except PlaceLostError:
        return False


def _own_device(policy: DevicePolicy) -> Device | None:
    try:
        return policy.detect()
    except TargetError:
        return None


def _reasons(infos: Iterable[WorkerInfo]) -> str:
    texts = [f"{info.name}: {info.reason}" for info in infos if info.reason]
    return "; ".join(texts) or "it has no nodes"
