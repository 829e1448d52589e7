"""The half of a host that compiles: candidates for whoever times them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import (
    MeasurementError,
)
from collage.backends.devices import DeviceKind
from collage.backends.storage import exclusive
from collage.cost.base import CostStatus
from collage.cost.deadline import Deadline
from collage.cost.device import policy_of
from collage.cost.engines.findings import FarFindings
from collage.cost.engines.ray.messages import (
    BuildOrder,
    BuildReply,
    HostSettings,
)
from collage.cost.engines.ray.under_way import Files, OrderUnderWay
from collage.cost.engines.shipping import pack
from collage.cost.processes.messages import Build, Built, Failure
from collage.cost.processes.worker_pool import WorkerPool


class Building:
    """Compiles, each thread in a process of its own.

    Parameters
    ----------
    settings : HostSettings
        How many at once, and their limits.
    context : BuildContext
        Folders of this host; findings go to its tuning log.
    kind : DeviceKind
        What is compiled for: where compiling disturbs what is timed, its device is held meanwhile.
    """

    def __init__(self, settings: HostSettings, context: BuildContext, kind: DeviceKind) -> None:
        self._settings, self._context, self._kind = settings, context, kind
        self._mine = threading.local()
        self._pools: list[WorkerPool] = []
        assert context.tuning_log is not None
        self._findings = FarFindings(context.tuning_log)
        self._hold = None if kind.compiles_beside else _SharedHold(kind)

    def build(
        self, order: BuildOrder, folder: Path, entry: OrderUnderWay
    ) -> tuple[BuildReply, Files]:
        """Compile a candidate in this thread's own process.

        Parameters
        ----------
        order : BuildOrder
            What to compile, with findings that this machine lacks.
        folder : Path
            Empty; what is built lies below it.
        entry : OrderUnderWay
            Told when the work begins, and whom to end with it.

        Returns
        -------
        tuple of BuildReply and Files
            How it went, with the findings made on the way; one archive of what was built, or no
            file where nothing was.
        """
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

    def _pool(self, plugins: tuple[str, ...], entry: OrderUnderWay) -> WorkerPool:
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
