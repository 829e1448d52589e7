"""The far side: what an actor does on its machine. It knows nothing of Ray.

Candidates are compiled, run and contained in child processes, as on the head's own machine, by the
same parts. What a host is asked and answers are bytes; nothing is unpickled here.
"""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from collage.backends.contract import BuildContext
from collage.backends.contract.context import default_context
from collage.backends.contract.errors import (
    CollageError,
    OutOfTimeError,
    ProtocolError,
)
from collage.backends.devices import device_named
from collage.backends.storage import OwnFolder
from collage.cost.device import policy_of
from collage.cost.engines.local import inspect_here
from collage.cost.engines.ray.building import Building
from collage.cost.engines.ray.messages import (
    AnyOrder,
    AnyReply,
    BuildOrder,
    Heartbeat,
    HostSettings,
    OthersOrder,
    OthersReply,
    Probe,
    RunReply,
    TimeIsUp,
    WorkerFailure,
)
from collage.cost.engines.ray.timing import Timing
from collage.cost.engines.ray.under_way import Files, OrderUnderWay
from collage.cost.processes.protocol import decode, decode_handshake, encode
from collage.cost.progress import ProgressEvent

_SET_BY_RAY = "OMP_NUM_THREADS"
"""Ray sets it to the cores that it counts for an actor; kernels are to use those of the machine."""


def probe(kind: str) -> bytes:
    """What this machine has of a kind of device, as a :class:`Probe`."""
    return encode(Probe(tuple(inspect_here(policy_of(device_named(kind))))))


class Host:
    """Builds, or times on one device, whatever a search orders.

    Every method may be called from any thread; those that take long wait there.

    Parameters
    ----------
    settings : bytes
        A :class:`HostSettings`.
    folder : str, optional
        Where its folder is made; by default below the cache folder of this machine.

    Raises
    ------
    ProtocolError
        When the head is of another version.
    TargetError
        When the device is not the one that it was started for.
    """

    def __init__(self, settings: bytes, folder: str | None = None) -> None:
        os.environ.pop(_SET_BY_RAY, None)
        self._settings: HostSettings = decode_handshake(settings, HostSettings)
        self._policy = policy_of(device_named(self._settings.kind))
        own = default_context()
        self._own = OwnFolder(Path(folder) if folder else own.cache_dir / "hosts")
        context = BuildContext(
            own.cache_dir,
            self._own.path / "work",
            self._settings.num_threads,
            self._settings.cxx,
            self._settings.ieee_denormals,
            self._own.path / "findings.jsonl",
            self._settings.replay,
            hurried=self._settings.hurried,
        )
        context.work_dir.mkdir()
        self._builders = max(1, self._settings.builds)
        # What starts a process outlives it: Linux ends a child with the thread that started it.
        self._threads = ThreadPoolExecutor(self._builders, "host")
        self._orders: dict[int, OrderUnderWay] = {}
        self._lock = threading.Lock()
        self._progress: list[ProgressEvent] = []
        self._names = itertools.count()
        self._building = Building(self._settings, context, self._policy.kind)
        self._timing = Timing(self._settings, context, self._keep_progress)

    def hello(self) -> int:
        """This process, once it is ready."""
        return os.getpid()

    def do(self, number: int, order: bytes, *files: bytes) -> Files:
        """Build or time what is ordered, as soon as a thread of this host is free.

        What fails with one of this project's errors is told in the reply.

        Parameters
        ----------
        number : int
            Of the order; :meth:`heartbeat` names it so while it is under way.
        order : bytes
            An order of :mod:`~collage.cost.engines.ray.messages`.
        *files : bytes
            Archives of what is to be timed: a library, and its test data.

        Returns
        -------
        list of bytes
            The encoded reply, and archives of the libraries that were built.
        """
        with self._lock:
            entry = self._orders[number] = OrderUnderWay()
        try:
            reply, shipped = self._threads.submit(self._do, entry, order, files).result()
        finally:
            with self._lock:
                del self._orders[number]
        return [encode(reply), *shipped]

    def _do(
        self, entry: OrderUnderWay, text: bytes, files: Sequence[bytes]
    ) -> tuple[AnyReply, Files]:
        folder = self._own.path / f"order-{next(self._names)}"
        try:
            entry.deadline.check()
            order: AnyOrder = decode(text, AnyOrder)
            if isinstance(order, BuildOrder) != bool(self._settings.builds):
                raise ProtocolError("this host is not for that", value=order)
            if isinstance(order, BuildOrder):
                return self._building.build(order, folder, entry)
            if isinstance(order, OthersOrder):
                return OthersReply(self._timing.others(entry)), []
            return RunReply(tuple(self._timing.time(order, files, folder, entry))), []
        except OutOfTimeError:
            return TimeIsUp(), []
        except (CollageError, OSError) as err:
            return WorkerFailure(f"{type(err).__name__}: {err}"), []
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def lacks(self, digests: list[str]) -> list[str]:
        """Which archives are not kept here."""
        return self._timing.lacks(digests)

    def keep(self, digest: str, archive: bytes, limit_bytes: int) -> str:
        """Keep an archive's files until this host ends.

        Parameters
        ----------
        digest : str
            What it is asked for by.
        archive : bytes
            From :func:`~collage.cost.engines.shipping.pack`.
        limit_bytes : int
            What its files may take.

        Returns
        -------
        str
            Why it cannot be kept; empty when it is.
        """
        try:
            self._timing.keep(digest, archive, limit_bytes)
        except (CollageError, OSError) as err:
            return f"{type(err).__name__}: {err}"
        return ""

    def heartbeat(self) -> bytes:
        """A :class:`Heartbeat`."""
        with self._lock:
            working = {str(number): order.seconds for number, order in self._orders.items()}
            progress, self._progress = self._progress, []
        return encode(Heartbeat(working, tuple(progress)))

    def stop(self) -> None:
        """Give up what is under way, and what waits for its turn."""
        with self._lock:
            for order in self._orders.values():
                order.stopped = True

    def close(self) -> None:
        """End all processes and delete all files."""
        self.stop()
        self._threads.shutdown()
        self._timing.close()
        self._building.close()
        self._own.remove()

    def _keep_progress(self, event: ProgressEvent) -> None:
        with self._lock:
            self._progress.append(event)
