"""The far side: what an actor does on its machine. It knows nothing of Ray.

Candidates are compiled, run and contained in child processes, as on the head's own machine, by the
same parts. What a host is asked and answers are bytes; nothing is unpickled here.
"""

from __future__ import annotations

import itertools
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from collage.backends.contract import BuildContext
from collage.backends.contract.context import default_context
from collage.backends.contract.errors import (
    CollageError,
    MeasurementError,
    OutOfTimeError,
    ProtocolError,
    TargetError,
)
from collage.backends.devices import DeviceKind, device_named
from collage.backends.storage import OwnFolder, exclusive
from collage.cost.base import CostStatus
from collage.cost.deadline import Deadline
from collage.cost.device import policy_of
from collage.cost.engines.findings import FarFindings
from collage.cost.engines.local import LocalEngine, inspect_here
from collage.cost.engines.ray.messages import (
    AnyOrder,
    AnyReply,
    BuildOrder,
    BuildReply,
    HostSettings,
    ModelsOrder,
    OthersOrder,
    OthersReply,
    Probe,
    Pulse,
    RestOrder,
    RunOrder,
    RunReply,
    TimeIsUp,
    Trouble,
    WarmOrder,
)
from collage.cost.engines.shipping import pack, unpack
from collage.cost.measure.engine import Work
from collage.cost.measure.runner import RunJob, RunResult
from collage.cost.measure.whole_models.model_timer import EndToEndQuestion, WholeModel
from collage.cost.processes.messages import Build, Built, Failure
from collage.cost.processes.protocol import decode, decode_handshake, encode
from collage.cost.processes.worker_pool import WorkerPool
from collage.cost.progress import ProgressEvent
from collage.cost.reference import Sample

Files = list[bytes]
"""Archives that travel beside a message."""

_SET_BY_RAY = "OMP_NUM_THREADS"
"""Ray sets it to the cores that it counts for an actor; kernels are to use those of the machine."""


def probe(kind: str) -> bytes:
    """What this machine has of a kind of device, as a :class:`Probe`.

    Parameters
    ----------
    kind : str
        The name of a :class:`DeviceKind`.
    """
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
        )
        context.work_dir.mkdir()
        self._builders = max(1, self._settings.builds)
        # What starts a process outlives it: Linux ends a child with the thread that started it.
        self._threads = ThreadPoolExecutor(self._builders, "host")
        self._orders: dict[int, _Order] = {}
        self._lock = threading.Lock()
        self._progress: list[ProgressEvent] = []
        self._names = itertools.count()
        self._building = _Building(self._settings, context, self._policy.kind)
        self._timing = _Timing(self._settings, context, self._tell)

    def hello(self) -> int:
        """This process, once it is ready."""
        return os.getpid()

    def do(self, number: int, order: bytes, *files: bytes) -> Files:
        """Do what is ordered.

        Parameters
        ----------
        number : int
            Of the order.
        order : bytes
            An order of :mod:`~collage.cost.engines.ray.messages`.
        *files : bytes
            Archives.

        Returns
        -------
        list of bytes
            A reply, and archives.
        """
        with self._lock:
            entry = self._orders[number] = _Order()
        try:
            reply, shipped = self._threads.submit(self._do, entry, order, files).result()
        finally:
            with self._lock:
                del self._orders[number]
        return [encode(reply), *shipped]

    def _do(self, entry: _Order, text: bytes, files: Sequence[bytes]) -> tuple[AnyReply, Files]:
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
            return Trouble(f"{type(err).__name__}: {err}"), []
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def lacks(self, digests: list[str]) -> list[str]:
        """Which archives are not kept here.

        Parameters
        ----------
        digests : list of str
            Theirs.
        """
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

    def pulse(self) -> bytes:
        """A :class:`Pulse`."""
        with self._lock:
            working = {str(number): order.seconds for number, order in self._orders.items()}
            progress, self._progress = self._progress, []
        return encode(Pulse(working, tuple(progress)))

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

    def _tell(self, event: ProgressEvent) -> None:
        with self._lock:
            self._progress.append(event)


class _Order:
    """What is under way, since when, and whether it is to be given up."""

    def __init__(self) -> None:
        self.stopped = False
        self.deadline = Deadline(lambda: float("-inf") if self.stopped else float("inf"))
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        """Time worked on it, waiting left out."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    def work(self) -> None:
        """The work on it begins, or begins anew."""
        self._since = time.monotonic()

    @contextmanager
    def holding(self, kind: DeviceKind, index: int = 0) -> Iterator[None]:
        """Hold the device; waiting for it is not working."""
        self._since = None
        with exclusive(kind, None, lambda: self.stopped, index=index):
            self.work()
            yield


class _Building:
    """Compiles, each thread in a process of its own."""

    def __init__(self, settings: HostSettings, context: BuildContext, kind: DeviceKind) -> None:
        self._settings, self._context, self._kind = settings, context, kind
        self._mine = threading.local()
        self._pools: list[WorkerPool] = []
        assert context.tuning_log is not None
        self._findings = FarFindings(context.tuning_log)
        self._hold = None if kind.compiles_beside else _SharedHold(kind)

    def build(self, order: BuildOrder, folder: Path, entry: _Order) -> tuple[BuildReply, Files]:
        self._findings.take(order.findings)
        place = folder / "built"
        request = Build(
            order.workload,
            order.target,
            place,
            self._context.work_dir / "references",
            replace(self._context, work_dir=folder / "work"),
            self._settings.config.seed,
        )
        answers: list[Built | Failure] = []
        pool = self._pool(order.plugins, entry)
        with ExitStack() as stack:
            if self._hold is not None:
                stack.enter_context(self._hold.hold(lambda: entry.stopped))
            entry.work()
            pool.ask(1, lambda _: request, Built, lambda _, answer: answers.append(answer))
        news = tuple(self._findings.news())
        (answer,) = answers
        if isinstance(answer, Failure):
            return BuildReply(answer.status, answer.reason, 0.0, news), []
        try:
            files = [pack(place, self._settings.config.memory_limit_bytes)]
        except MeasurementError as err:
            # Nobody else could send it either.
            return BuildReply(CostStatus.UNKNOWN, str(err), answer.build_sec, news), []
        return BuildReply(CostStatus.VALID, "", answer.build_sec, news), files

    def _pool(self, plugins: tuple[str, ...], entry: _Order) -> WorkerPool:
        """This thread's, which knows at least these plugins."""
        mine = self._mine
        mine.entry = entry
        known: WorkerPool | None = getattr(mine, "pool", None)
        if known is not None:
            if set(plugins) <= mine.plugins:
                return known
            known.close()
        policy = policy_of(self._kind)
        mine.plugins = {*plugins}
        mine.pool = WorkerPool(
            sorted(plugins),
            1,
            policy,
            timeout_sec=policy.build_timeout_sec(self._settings.config),
            memory_limit_bytes=self._settings.config.memory_limit_bytes,
            deadline=Deadline(lambda: mine.entry.deadline.end),
            beside=self._settings.builds - 1,
        )
        self._pools.append(mine.pool)
        pool: WorkerPool = mine.pool
        return pool

    def close(self) -> None:
        for pool in self._pools:
            pool.close()
        if self._hold is not None:
            self._hold.close()


class _SharedHold:
    """A device that several threads hold together, against other processes.

    Compilers of one machine work at the same time; nobody may time there meanwhile.
    """

    def __init__(self, kind: DeviceKind) -> None:
        self._kind = kind
        self._lock = threading.Lock()
        self._holders = 0
        # A file's lock belongs to the thread that took it.
        self._thread = ThreadPoolExecutor(1, "hold")
        self._stack = ExitStack()

    @contextmanager
    def hold(self, given_up: Callable[[], bool]) -> Iterator[None]:
        with self._lock:
            if not self._holders:
                taken = exclusive(self._kind, None, given_up)
                self._thread.submit(self._stack.enter_context, taken).result()
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if not self._holders:
                    self._thread.submit(self._stack.close).result()

    def close(self) -> None:
        self._thread.shutdown()


class _Timing:
    """Times on the one device that this process sees first."""

    def __init__(
        self, settings: HostSettings, context: BuildContext, tell: Callable[[ProgressEvent], None]
    ) -> None:
        self._settings, self._tell = settings, tell
        self._kept = context.work_dir / "kept"
        self._entry = _Order()
        self._policy = policy_of(device_named(settings.kind))
        if settings.builds:
            return
        found = self._policy.all_here()[0]
        if found.device != settings.device:
            raise TargetError(
                f"the device is {found.device}, and not {settings.device}", value=found.device
            )
        self._index = found.index
        deadline = Deadline(lambda: self._entry.deadline.end)
        work = Work(self._policy, context, settings.config, deadline=deadline)
        self._workers = LocalEngine().open(work)
        self._runner = self._workers.places[0].runner

    def time(
        self, order: AnyOrder, files: Sequence[bytes], folder: Path, entry: _Order
    ) -> list[RunResult]:
        self._entry = entry
        entry.work()
        match order:
            case RunOrder():
                return [self._run(order, files, folder, entry)]
            case ModelsOrder():
                return self._compare(order, entry)
            case WarmOrder():
                self._runner.warm_up()
            case RestOrder():
                self._workers.close()
        return []

    def _run(
        self, order: RunOrder, files: Sequence[bytes], folder: Path, entry: _Order
    ) -> RunResult:
        limit = self._settings.config.memory_limit_bytes
        places = [folder / str(index) for index in range(len(files))]
        for archive, place in zip(files, places, strict=True):
            unpack(archive, place, limit)
        job = RunJob(places[0] / order.library, places[-1])
        return self._runner.run_sharing(job, lambda: entry.holding(self._policy.kind, self._index))

    def _compare(self, order: ModelsOrder, entry: _Order) -> list[RunResult]:
        samples = [Sample.load(self._kept / digest) for digest in order.samples]
        models = [WholeModel(model.key, model.description, ()) for model in order.models]
        question = EndToEndQuestion(models, samples, order.rounds, order.provisional)
        libraries = [self._kept / model.archive / model.library for model in order.models]
        # Two processes of this host must not be at work on one device.
        self._runner.close()
        with entry.holding(self._policy.kind, self._index):
            return self._workers.timer(self._tell).measure(question, libraries, entry.deadline)

    def others(self, entry: _Order) -> str:
        with entry.holding(self._policy.kind, self._index):
            return self._runner.others()

    def lacks(self, digests: Sequence[str]) -> list[str]:
        return [digest for digest in digests if not (self._kept / _plain(digest)).is_dir()]

    def keep(self, digest: str, archive: bytes, limit_bytes: int) -> None:
        place = self._kept / _plain(digest)
        if not place.is_dir():
            partial = place.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            unpack(archive, partial, limit_bytes)
            partial.rename(place)

    def close(self) -> None:
        if not self._settings.builds:
            self._workers.close()


def _plain(digest: str) -> str:
    if not digest.isalnum():
        raise TargetError(f"'{digest}' is no digest", value=digest)
    return digest
