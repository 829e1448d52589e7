"""Building on the far side of an executor: a function of bytes, which gives bytes.

An executor gives functions no place to keep anything between two calls. The compiler processes
that would otherwise start anew for every candidate, a second each, are therefore kept by the
process that the function runs in, one for each thread that builds, until they were idle for a while
or the search that they belong to has ended.
"""

from __future__ import annotations

import functools
import math
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from collage.backends.contract.errors import CollageError, MeasurementError, OutOfTimeError
from collage.backends.devices import device_named
from collage.backends.storage import OwnFolder
from collage.cost.deadline import Deadline
from collage.cost.device import policy_of
from collage.cost.engines.shipping import pack
from collage.cost.measure.versions import differences, versions_here
from collage.cost.processes.messages import Build, Built, Failure
from collage.cost.processes.plugins import load_plugins
from collage.cost.processes.protocol import (
    PROTOCOL,
    Message,
    decode,
    decode_handshake,
    encode,
)
from collage.cost.processes.worker_pool import WorkerPool

_POLL_SEC = 0.25


class Limits(Message, frozen=True):
    """What a compiler process may take.

    Attributes
    ----------
    timeout_sec : float
        For one workload, from when its compilation begins.
    memory_bytes : int
        That one workload may add.
    idle_sec : float
        How long a process that has nothing to do is kept.
    """

    timeout_sec: float
    memory_bytes: int
    idle_sec: float


class Order(Message, frozen=True):
    """What is to be built, for whom.

    Attributes
    ----------
    build : Build
        Its folders are the sender's, and others take their place.
    plugins : tuple of str
        See :mod:`collage.cost.processes.plugins`.
    device : str
        The kind of device to build for.
    versions : dict of str to str
        What the records of the sender's log say that was built with.
    limits : Limits
        Of time and memory.
    left_sec : float
        Until the sender gives up, from when this is read; it may be infinite.
    wanted : Path
        The sender removes this file when it gives up or has finished, which is noticed where both
        see the same files.
    """

    build: Build
    plugins: tuple[str, ...]
    device: str
    versions: dict[str, str]
    limits: Limits
    left_sec: float
    wanted: Path
    protocol: int = PROTOCOL


class Delivery(Message, frozen=True, tag_field="delivery"):
    """The first line of what comes back."""


class Delivered(Delivery, frozen=True, tag="delivered"):
    """Built; the files follow, as :func:`collage.cost.engines.shipping.pack` has them."""

    build_sec: float


class NotBuilt(Delivery, frozen=True, tag="not_built"):
    """Why the candidate cannot be compiled."""

    failure: Failure


class Refused(Delivery, frozen=True, tag="refused"):
    """Why nothing can be compiled by that process."""

    reason: str


def build_there(text: bytes) -> bytes:
    """Compile a workload in a contained process of the machine that this runs on.

    Parameters
    ----------
    text : bytes
        An :class:`Order`.

    Returns
    -------
    bytes
        A :class:`Delivery` on a line of its own, and the files. An error that is not the
        candidate's is a :class:`Refused`, for not every exception survives the way back.
    """
    try:
        order: Order = decode_handshake(text, Order)
        return _build(order)
    except (CollageError, OSError, ImportError, AttributeError, TypeError) as err:
        return encode(Refused(f"{os.uname().nodename}: {err}")) + b"\n"


def read_delivery(data: bytes) -> tuple[Delivery, bytes]:
    """What :func:`build_there` gave: what became of it, and the files.

    Raises
    ------
    ProtocolError
        When it is no such thing.
    """
    line, _, files = data.partition(b"\n")
    return decode(line, Delivered | NotBuilt | Refused), files


def _build(order: Order) -> bytes:
    here = _versions(order.device, order.build.context.cxx, order.plugins)
    if apart := differences(here, order.versions):
        raise MeasurementError(apart)
    with _scratch() as (folder, shared), _warm(os.getpid()).pool(order) as pool:
        # Found there, they would not be this machine's; nothing is found here for others.
        context = replace(
            order.build.context,
            cache_dir=shared / "cache",
            work_dir=folder / "work",
            tuning_log=None,
        )
        build = msgspec.structs.replace(
            order.build, folder=folder / "build", references=shared / "references", context=context
        )
        answers: list[Built | Failure] = []
        pool.ask(1, lambda _: build, Built, lambda _, answer: answers.append(answer))
        (answer,) = answers
        if isinstance(answer, Failure):
            return encode(NotBuilt(answer)) + b"\n"
        files = pack(build.folder, order.limits.memory_bytes)
        return encode(Delivered(answer.build_sec)) + b"\n" + files


@functools.cache
def _versions(device: str, cxx: str, plugins: tuple[str, ...]) -> dict[str, str]:
    load_plugins(plugins)
    return versions_here(policy_of(device_named(device)), cxx)


@contextmanager
def _scratch() -> Iterator[tuple[Path, Path]]:
    """A folder for one build, and one that all builds of this user share on this machine."""
    shared = Path(tempfile.gettempdir()) / f"collage-{os.getuid()}-builders"
    shared.mkdir(mode=0o700, exist_ok=True)
    found = shared.lstat()
    # Whoever can write there decides what is linked into candidates.
    if shared.is_symlink() or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise MeasurementError(f"others may write to '{shared}'", value=str(shared))
    with OwnFolder(shared / "builds") as own:
        yield own.path, shared


class _Kept:
    """A compiler process, and the orders that it takes."""

    def __init__(self, order: Order) -> None:
        self.key = _key(order)
        self._wanted = order.wanted if order.wanted.exists() else None
        self._idle_sec = order.limits.idle_sec
        self._end = math.inf
        self._idle_since = math.inf
        self.pool = WorkerPool(
            order.plugins,
            1,
            policy_of(device_named(order.device)),
            timeout_sec=order.limits.timeout_sec,
            memory_limit_bytes=order.limits.memory_bytes,
            deadline=Deadline(lambda: -math.inf if self._is_unwanted() else self._end),
        )

    def begin(self, left_sec: float) -> None:
        self._end, self._idle_since = time.monotonic() + left_sec, math.inf

    def rest(self) -> None:
        self._end, self._idle_since = math.inf, time.monotonic()

    def is_done(self) -> bool:
        return self._is_unwanted() or time.monotonic() > self._idle_since + self._idle_sec

    def _is_unwanted(self) -> bool:
        return self._wanted is not None and not self._wanted.exists()


class _Warm:
    """The compiler processes of this process that have nothing to do."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Kept] = []
        self._watched = False

    @contextmanager
    def pool(self, order: Order) -> Iterator[WorkerPool]:
        kept = self._take(order)
        kept.begin(order.left_sec)
        try:
            yield kept.pool
        except OutOfTimeError as err:
            raise MeasurementError("nobody waits for it any longer") from err
        finally:
            kept.rest()
            with self._lock:
                self._idle.append(kept)
                if not self._watched:
                    self._watched = True
                    threading.Thread(
                        target=self._watch, name="collage-builders", daemon=True
                    ).start()

    def _take(self, order: Order) -> _Kept:
        with self._lock:
            key = _key(order)
            # The last one: the others may be idle for long enough to end.
            for kept in reversed(self._idle):
                if kept.key == key:
                    self._idle.remove(kept)
                    return kept
        return _Kept(order)

    def _watch(self) -> None:
        """End what is no longer of use; ends itself when there is nothing."""
        while True:
            time.sleep(_POLL_SEC)
            with self._lock:
                done = [kept for kept in self._idle if kept.is_done()]
                self._idle = [kept for kept in self._idle if kept not in done]
                for kept in done:
                    kept.pool.close()
                if not self._idle:
                    self._watched = False
                    return


@functools.cache
def _warm(pid: int) -> _Warm:
    """Of a process; one that was forked begins without those of its parent."""
    return _Warm()


def _key(order: Order) -> tuple[object, ...]:
    # A process dies with the thread that started it.
    return order.plugins, order.device, order.limits, order.wanted, threading.get_ident()
