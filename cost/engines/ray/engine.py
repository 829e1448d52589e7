"""The engine that users name: ``ray``, ``ray://head:10001``, ``ray://local``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from collage.backends.contract.context import default_context
from collage.backends.contract.errors import TargetError
from collage.cost.config import MeasureConfig
from collage.cost.device import DevicePolicy
from collage.cost.engines.named import WorkersUrl
from collage.cost.engines.ray.builder import RayBuilder
from collage.cost.engines.ray.cluster import LOCAL, RUNNING, Cluster
from collage.cost.engines.ray.fleet import Fleet
from collage.cost.engines.ray.link import Link
from collage.cost.engines.ray.runner import RayRunner, RayTimer
from collage.cost.measure.builder import Builder
from collage.cost.measure.engine import Engine, Place, Work, WorkerInfo, Workers
from collage.cost.measure.whole_models.model_timer import ModelTimer
from collage.cost.progress import ProgressCallback

_PATIENCE_SEC = 30.0


class RayEngine(Engine):
    """The nodes of a Ray cluster; none is started but by ``ray://local``.

    Builders take ``CPU``, one for each candidate that is compiled at the same time; timing on a GPU
    takes one ``GPU``; where nodes announce their devices
    (:func:`~collage.cost.engines.ray.fleet.announcement`), it takes one of what they announce.

    Parameters
    ----------
    address : str
        ``ray`` or ``auto`` for the cluster that this process is in, or that runs on this machine;
        ``ray://host:port`` for one elsewhere, by way of Ray's client; Ray's own ``host:port`` from
        one of its nodes; ``ray://local`` for one of this machine alone, which is ended afterwards.
    patience_sec : float
        How long an actor may give no sign of life.

    Raises
    ------
    WorkersError
        When Ray is not installed.

    Examples
    --------
    >>> RayEngine("ray").address, RayEngine("ray://head:10001").address
    ('auto', 'ray://head:10001')
    """

    def __init__(self, address: str = "ray", *, patience_sec: float = _PATIENCE_SEC) -> None:
        named = {"ray": RUNNING, RUNNING: RUNNING, f"ray://{LOCAL}": LOCAL}
        self.address = named.get(address, address)
        self._patience_sec = patience_sec
        self._cluster = Cluster(self.address)

    @classmethod
    def from_url(cls, url: WorkersUrl) -> RayEngine:
        """As a user names it.

        Raises
        ------
        WorkersError
            When an option is unknown, or the port is missing.
        """
        patience = float(url.only("patience").get("patience", _PATIENCE_SEC))
        if url.host and url.host != LOCAL:
            host, port = url.address(10001)
            return cls(f"ray://{host}:{port}", patience_sec=patience)
        return cls(f"ray://{LOCAL}" if url.host else "ray", patience_sec=patience)

    def open(self, work: Work) -> Workers:
        return _RayWorkers(self._cluster, work, self._patience_sec)

    def inspect(self, policy: DevicePolicy) -> list[WorkerInfo]:
        work = Work(policy, default_context(), MeasureConfig())
        fleet = Fleet(self._cluster, work, self._patience_sec)
        try:
            fleet.start()
            with suppress(TargetError):  # What is said of each node says why.
                fleet.device()
            return fleet.infos()
        finally:
            fleet.close()


class _RayWorkers(Workers):
    """Those of a cluster that have one kind of device, and all that can build for it.

    Parameters
    ----------
    cluster : Cluster
        Connected when somebody is needed.
    work : Work
        What they are for.
    patience_sec : float
        How long an actor may give no sign of life.
    """

    builds_beside = True  # A node that builds on what it times on holds it meanwhile.

    def __init__(self, cluster: Cluster, work: Work, patience_sec: float) -> None:
        self._cluster, self._work = cluster, work
        self._fleet = Fleet(cluster, work, patience_sec)
        self._places: dict[Link, Place] = {}
        try:
            self.device = self._fleet.device()
        except BaseException:
            # Nobody has these workers who could close them.
            self._fleet.close()
            raise

    @property
    def places(self) -> Sequence[Place]:  # type: ignore[override]
        """Those there are now: nodes come and go."""
        links = self._fleet.timers()
        self._places = {
            link: self._places.get(link) or Place(link.name, RayRunner(link, self._work))
            for link in links
        }
        return tuple(self._places.values())

    @property
    def parallel_builds(self) -> int:
        return sum(link.settings.builds for link in self._fleet.builders())

    def builder(self, plugins: Sequence[str]) -> Builder:
        return RayBuilder(self._cluster, self._fleet, self._work, plugins)

    def timer(self, progress: ProgressCallback) -> ModelTimer:
        return RayTimer(self._fleet, self._work, progress)

    def close(self) -> None:
        self._fleet.close()
