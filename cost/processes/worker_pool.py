"""Warm worker processes that compile, several at a time."""

from __future__ import annotations

import select
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collage.cost.base import CostStatus
from collage.cost.deadline import NEVER, Deadline
from collage.cost.device import DevicePolicy, available_cores
from collage.cost.processes.crowding import FULL, Crowding
from collage.cost.processes.failure import WorkerFailure
from collage.cost.processes.kills import Kills
from collage.cost.processes.messages import A, Failure, Request
from collage.cost.processes.worker_process import WorkerProcess

_RETIRE_AFTER = 400
"""Requests after which a worker is replaced: TVM and LLVM never give all of their memory back."""

_WAIT_SEC = 0.02


@dataclass(frozen=True)
class _Killed:
    """In place of an answer: somebody else ended whoever was at it, or what it had started."""

    status: CostStatus
    reason: str


class WorkerPool:
    """Worker processes that share out requests; a dead one is replaced.

    Parameters
    ----------
    plugins : sequence of str
        For backends registered at run time, see :mod:`collage.cost.processes.plugins`.
    parallel : int
        Worker processes.
    policy : DevicePolicy
        Of the device that is compiled for.
    timeout_sec : float
        Wall time of one request.
    memory_limit_bytes : int
        Memory that one request may add to a worker.
    deadline : Deadline, optional
        When it comes, all workers end.
    beside : int
        Worker processes of other pools that share the machine's cores.
    niceness : int
        By how much they leave the cores to others.

    Examples
    --------
    >>> from pathlib import Path
    >>> from collage.cost import MeasureConfig
    >>> from collage.cost.device import CPU_POLICY
    >>> from collage.cost.processes.messages import Measured, Run
    >>> request = Run(Path("model.so"), (Path("sample"),), config=MeasureConfig())
    >>> with WorkerPool((), 1, CPU_POLICY, timeout_sec=60.0, memory_limit_bytes=1 << 30) as pool:
    ...     pool.ask(2, lambda _: request, Measured, lambda i, answer: print(i, answer.status))
    0 CostStatus.RUN_FAILED
    1 CostStatus.RUN_FAILED
    """

    def __init__(
        self,
        plugins: Sequence[str],
        parallel: int,
        policy: DevicePolicy,
        *,
        timeout_sec: float,
        memory_limit_bytes: int,
        deadline: Deadline = NEVER,
        beside: int = 0,
        niceness: int = 0,
    ) -> None:
        self._plugins = list(plugins)
        self._policy = policy
        self._timeout_sec = timeout_sec
        self._memory_limit_bytes = memory_limit_bytes
        self._deadline = deadline
        self._niceness = niceness
        self._workers: list[WorkerProcess | None] = [None] * parallel
        self._crowding = Crowding(parallel)
        sharing = parallel + beside
        # Threads of a product that share a core wait awake for each other: of two builders on two
        # cores each took three to twelve times as long for its references with two threads.
        self._blas_threads = max(1, available_cores() // sharing) if sharing > 1 else None

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker processes; the next request starts new ones."""
        for worker in self._workers:
            if worker is not None:
                worker.begin_close()
        for slot in range(len(self._workers)):
            self._drop(slot)

    def ask(
        self,
        count: int,
        request: Callable[[int], Request],
        kind: type[A],
        done: Callable[[int, A | Failure], None],
        more: Callable[[], bool] = lambda: False,
    ) -> None:
        """Have requests answered.

        Parameters
        ----------
        count : int
            Of requests.
        request : callable
            Makes the request of an index, when its turn has come.
        kind : type
            What answers them.
        done : callable
            Given each answer with its index as soon as it is there; the other workers go on
            meanwhile. For a worker that died, a failure is its answer; one of unknown status
            says that others killed whoever was at it, and nothing of the request.
        more : callable, optional
            Asked, again and again while a worker has nothing to do, whether there is one request
            more, with the next index.

        Raises
        ------
        OutOfTimeError
            When the deadline comes while answers are awaited.
        """
        waiting, kills = deque(range(count)), defaultdict[int, Kills](Kills)
        self._crowding.begin()
        running: dict[int, int] = {}

        def hand_out() -> None:
            nonlocal count
            for slot in range(len(self._workers)):
                if slot not in running and len(running) < self._crowding.most:
                    if not waiting:
                        if not more():
                            return
                        waiting.append(count)
                        count += 1
                    self._start(slot, request, waiting, running)

        if not waiting:
            if not more():
                return
            waiting.append(count)
            count += 1
        for slot in range(len(self._workers)):
            self._worker(slot)  # They import while the first ones get their requests.
        try:
            hand_out()
            while running:
                ended = []
                for slot, answer in self._finished(running, kind):
                    index = running.pop(slot)
                    if not isinstance(answer, _Killed):
                        ended.append((index, answer))
                    elif answer.reason.startswith(FULL):
                        if self._crowding.is_asked_again(index, answer.reason, len(running)):
                            self._drop_idle(running)
                            waiting.append(index)
                        else:
                            status, reason = answer.status, answer.reason
                            ended.append((index, Failure(status=status, reason=reason)))
                    elif kills[index].is_asked_again(answer.status):
                        waiting.appendleft(index)
                    else:
                        status, reason = kills[index].verdict(answer.reason)
                        ended.append((index, Failure(status=status, reason=reason)))
                    if waiting and len(running) < self._crowding.most:
                        self._start(slot, request, waiting, running)
                for index, answer in ended:
                    done(index, answer)
                hand_out()
        except BaseException:
            # An interrupt or a deadline leaves answers under way that nobody will read.
            self.close()
            raise

    def _drop_idle(self, running: dict[int, int]) -> None:
        """Give back what workers hold of a GPU that may not be at work now."""
        idle = [slot for slot in range(len(self._workers)) if slot not in running]
        for slot in idle[max(0, self._crowding.most - len(running)) :]:
            self._drop(slot)

    def _start(
        self,
        slot: int,
        request: Callable[[int], Request],
        waiting: deque[int],
        running: dict[int, int],
    ) -> None:
        index = waiting.popleft()
        made = request(index)
        self._worker(slot).send(made, self._timeout_sec)
        running[slot] = index

    def _finished(
        self, running: dict[int, int], kind: type[A]
    ) -> list[tuple[int, A | Failure | _Killed]]:
        """Who has ended, with its answer."""
        workers = {slot: self._worker(slot) for slot in running}
        select.select(list(workers.values()), [], [], _WAIT_SEC)
        ended: list[tuple[int, A | Failure | _Killed]] = []
        for slot, worker in workers.items():
            try:
                answer = worker.poll(0.0, kind)
            except WorkerFailure as err:
                self._drop(slot)
                said = _Killed if err.was_killed else Failure
                ended.append((slot, said(status=err.status, reason=f"the compiler {err.reason}")))
                continue
            if isinstance(answer, Failure) and answer.status is CostStatus.UNKNOWN:
                ended.append((slot, _Killed(answer.status, answer.reason)))
            elif answer is not None:
                ended.append((slot, answer))
        return ended

    def _worker(self, slot: int) -> WorkerProcess:
        worker = self._workers[slot]
        # What killed one that had nothing to do is not the next request's failure.
        if (
            worker is not None
            and worker.idle
            and (worker.requests >= _RETIRE_AFTER or not worker.alive)
        ):
            self._drop(slot)
            worker = None
        if worker is None:
            worker = WorkerProcess(
                self._plugins,
                memory_limit_bytes=self._memory_limit_bytes,
                policy=self._policy,
                blas_threads=self._blas_threads,
                deadline=self._deadline,
                niceness=self._niceness,
            )
            self._workers[slot] = worker
        return worker

    def _drop(self, slot: int) -> None:
        worker = self._workers[slot]
        if worker is not None:
            worker.close()
        self._workers[slot] = None
