"""Fleets on this machine's loopback, and what of them may be killed."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import psutil

from collage.testing.fixtures.ray_cluster import LoopbackCluster
from collage.testing.fixtures.rpc_fleet import RpcFleet

_COMPILERS = ("g++", "cc1", "cc1plus", "as", "collect2", "ld")

Victims = Mapping[str, list[Callable[[], None]]]
"""What kills one of a kind, by the kind's name."""


class Fleet:
    """What takes part in searches besides the search itself.

    This one is of this machine: the search starts its workers, and they go with it.
    """

    workers = "local"

    def victims(self, head: psutil.Process) -> Victims:
        """What may be killed now.

        Parameters
        ----------
        head : psutil.Process
            The search.
        """
        return {
            "workers of the search": [one.kill for one in _workers(head)],
            "what forks workers": [one.kill for one in _below(head, _named("collage-server"))],
            "compilers": [one.kill for one in _compilers(head)],
        }


class RpcPool(Fleet):
    """A tracker with two servers, both started again when they were killed."""

    def __init__(self, fleet: RpcFleet) -> None:
        self._fleet = fleet
        self.workers = fleet.url

    def victims(self, head: psutil.Process) -> Victims:
        alive = [n for n, server in enumerate(self._fleet.servers) if server.poll() is None]
        return {
            **super().victims(head),
            "servers": [partial(self._replace, number) for number in alive],
            "sessions of servers": [one.kill for one in self._fleet.sessions()],
            "trackers": [self._restart_tracker],
        }

    def _replace(self, number: int) -> None:
        self._fleet.kill_server(number)
        self._fleet.start_server()

    def _restart_tracker(self) -> None:
        self._fleet.end_tracker()
        self._fleet.start_tracker()


class RayPool(Fleet):
    """A cluster of two nodes; one that was killed is replaced."""

    def __init__(self, cluster: LoopbackCluster) -> None:
        self._cluster = cluster
        self.workers = cluster.client_address
        self._names = ["node-0", "node-1"]
        self._count = len(self._names)
        cluster.add(*self._names, cpus=2)

    def victims(self, head: psutil.Process) -> Victims:
        actors = self._cluster.actors()
        below = [one for actor in actors for one in _workers(actor)]
        compilers = [one for actor in actors for one in _compilers(actor)]
        return {
            "workers of actors": [one.kill for one in below],
            "compilers": [one.kill for one in [*compilers, *_compilers(head)]],
            "actors": [one.kill for one in actors],
            "nodes": [partial(self._replace, name) for name in self._names],
        }

    def _replace(self, name: str) -> None:
        self._cluster.kill_node(name)
        self._names.remove(name)
        self._names.append(f"node-{self._count}")
        self._count += 1
        self._cluster.add(self._names[-1], cpus=2)


@contextlib.contextmanager
def _local() -> Iterator[Fleet]:
    yield Fleet()


@contextlib.contextmanager
def _rpc() -> Iterator[Fleet]:
    with RpcFleet(2) as fleet:
        yield RpcPool(fleet)


@contextlib.contextmanager
def _ray() -> Iterator[Fleet]:
    with (
        tempfile.TemporaryDirectory(prefix="faults-ray-", ignore_cleanup_errors=True) as folder,
        LoopbackCluster(Path(folder)) as cluster,
    ):
        yield RayPool(cluster)


FLEETS: Mapping[str, Callable[[], AbstractContextManager[Fleet]]] = {
    "local": _local,
    "ray": _ray,
    "rpc": _rpc,
}


def _workers(head: psutil.Process) -> list[psutil.Process]:
    return _below(head, _named("collage-worker"))


def _compilers(head: psutil.Process) -> list[psutil.Process]:
    return _below(head, _named(*_COMPILERS))


def _named(*names: str) -> Callable[[psutil.Process], bool]:
    return lambda child: child.name() in names


def _below(head: psutil.Process, is_one: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    found = []
    for child in head.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if is_one(child):
                found.append(child)
    return found
