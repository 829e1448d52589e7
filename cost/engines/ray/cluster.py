"""What is asked of Ray: to be connected, which nodes there are, and actors on one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from collage.backends.contract.errors import MeasurementError, WorkersError, last_line
from collage.cost.engines.named import extra_module
from collage.cost.engines.ray.host import Host

LOCAL = "local"
"""In place of an address: a cluster of this machine alone, which is started and ended by us."""

RUNNING = "auto"
"""In place of an address: the cluster that this process is in, or that runs on this machine."""

_CLIENT = "ray://"
_TRIES = 3

ANNOUNCED = "collage:"
"""How the custom resources begin by which nodes say what device they have."""

_ALL_GPUS = {"env_vars": {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}}
"""An actor without a GPU of its own may look at all of them, and tune under their locks."""


@dataclass(frozen=True)
class Node:
    """A node that is alive.

    Attributes
    ----------
    id : str
        Ray's, which no other node ever gets.
    name : str
        What it is called: its address, unless it was given a name or has neighbours there.
    address : str
        Of the machine.
    cpus, gpus : int
        As Ray counts them.
    announced : frozenset of str
        Its custom resources that begin as ours do.
    """

    id: str
    name: str
    address: str
    cpus: int
    gpus: int
    announced: frozenset[str]


class Cluster:
    """A connection to Ray, shared by all who use it at the same time.

    Parameters
    ----------
    address : str
        ``ray://host:port``, Ray's own ``host:port``, :data:`RUNNING` or :data:`LOCAL`.

    Raises
    ------
    WorkersError
        When Ray is not installed.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.ray: ModuleType = extra_module("ray", "ray")
        self._affinity = extra_module("ray.util.scheduling_strategies", "ray")
        self.errors: tuple[type[Exception], ...] = (self.ray.exceptions.RayError, ConnectionError)
        self._lock = threading.Lock()
        self._users = 0
        self._owned = False

    def connect(self) -> None:
        """Be connected until :meth:`leave` was called as often.

        Raises
        ------
        MeasurementError
            When there is no such cluster.
        WorkersError
            When this process is in another cluster.
        """
        with self._lock:
            if not self._users:
                self._connect()
            self._users += 1

    def leave(self) -> None:
        """Need it no longer: what was connected for us is disconnected after the last one."""
        with self._lock:
            self._users -= 1
            if not self._users and self._owned:
                self.ray.shutdown()

    def _connect(self) -> None:
        self._owned = not self.ray.is_initialized()
        if not self._owned:
            if self.address == RUNNING:
                return
            raise WorkersError(
                f"this process is in a Ray cluster already and cannot go to '{self.address}' too; "
                "workers 'ray' are those of its own",
                value=self.address,
            )
        quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
        if self.address == LOCAL:
            quiet["include_dashboard"] = False
        for tries_left in reversed(range(_TRIES)):
            try:
                self.ray.init(self.address, **quiet)
                return
            except (self.ray.exceptions.RayError, RuntimeError, ValueError, OSError) as err:
                # What a failed client leaves behind would be in the way of the next connection.
                self.ray.shutdown()
                # A head that is busy may need longer than Ray gives it to start a client's server.
                if tries_left and self.address.startswith(_CLIENT):
                    continue
                where = "on this machine" if self.address == RUNNING else f"at '{self.address}'"
                raise MeasurementError(
                    f"no Ray cluster can be reached {where}: {last_line(err)}", value=self.address
                ) from err

    def nodes(self) -> list[Node]:
        """Those that are alive.

        Raises
        ------
        MeasurementError
            When the cluster does not answer.
        """
        try:
            alive = [node for node in self.ray.nodes() if node["Alive"]]
        except self.errors as err:
            raise MeasurementError(f"the Ray cluster does not answer: {err}") from err
        named = [node.get("NodeName") or node["NodeManagerAddress"] for node in alive]
        found = []
        for node, name in zip(alive, named, strict=True):
            resources: dict[str, float] = node["Resources"]
            found.append(
                Node(
                    node["NodeID"],
                    name if named.count(name) == 1 else f"{name}/{node['NodeID'][:6]}",
                    node["NodeManagerAddress"],
                    int(resources.get("CPU", 0)),
                    int(resources.get("GPU", 0)),
                    frozenset(one for one in resources if one.startswith(ANNOUNCED)),
                )
            )
        return sorted(found, key=lambda node: (node.name, node.id))

    def probe(self, node: Node, kind: str, *, all_gpus: bool) -> Any:
        """Have a node looked at: a reference to the bytes of a
        :class:`~collage.cost.engines.ray.messages.Probe`, or to a text that says why not.

        Parameters
        ----------
        node : Node
            Which.
        kind : str
            Of device.
        all_gpus : bool
            Whether to look for GPUs.

        Returns
        -------
        object
            A reference of Ray's; nothing is waited for.
        """
        options: dict[str, Any] = {"num_cpus": 0, "max_retries": 0, **self._there(node)}
        if all_gpus:
            options["runtime_env"] = _ALL_GPUS
        return self.ray.remote(_look_around()).options(**options).remote(kind)

    def start_host(
        self, node: Node, settings: bytes, concurrency: int, resources: Mapping[str, float]
    ) -> Any:
        """Start a :class:`Host` as an actor on a node; it is there when its ``hello`` answers.

        It is not restarted by Ray, which would do the same again without asking: whether what was
        lost is done here or elsewhere is decided where the work is handed out.

        Parameters
        ----------
        node : Node
            Where.
        settings : bytes
            For its constructor.
        concurrency : int
            Calls at the same time.
        resources : mapping of str to float
            That it takes of the node, ``CPU`` and ``GPU`` among them.

        Returns
        -------
        object
            The actor's handle.
        """
        custom = dict(resources)
        options: dict[str, Any] = {
            "num_cpus": custom.pop("CPU", 0),
            "num_gpus": custom.pop("GPU", 0),
            "resources": custom,
            "max_restarts": 0,
            "max_task_retries": 0,
            "max_concurrency": concurrency,
            **self._there(node),
        }
        if node.gpus and not options["num_gpus"]:
            options["runtime_env"] = _ALL_GPUS
        return self.ray.remote(Host).options(**options).remote(settings)

    def _there(self, node: Node) -> dict[str, Any]:
        strategy = self._affinity.NodeAffinitySchedulingStrategy(node.id, soft=False)
        return {"scheduling_strategy": strategy}


def _look_around() -> Callable[[str], bytes | str]:
    """What a probe runs. It crosses by its code, for the other side may not know its name."""

    def look_around(kind: str) -> bytes | str:
        try:
            from collage.cost.engines.ray.host import probe
        except ImportError as err:
            return f"collage cannot be used there: {err}"
        return probe(kind)

    return look_around
