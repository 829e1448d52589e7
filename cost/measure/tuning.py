"""Backends' tuning of all candidates at once, in processes of their own, beside the builders."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from collage.backends.contract import BackendTarget, BuildContext, Tunable
from collage.backends.contract.errors import MeasurementError
from collage.cost.config import MeasureConfig
from collage.cost.device import DevicePolicy
from collage.cost.measure.replay import Question
from collage.cost.processes.described import TargetMessage, WorkloadMessage
from collage.cost.processes.failure import WorkerFailure
from collage.cost.processes.messages import Failure, Tune, Tuned
from collage.cost.processes.plugins import plugins_for
from collage.cost.processes.worker_process import WorkerProcess
from collage.cost.workload.workload import Workload


class Tuning:
    """One process for each target that tunes; use as a context manager, which ends them.

    A workload may be built once it is chosen for, where its backend tells, while others are not.

    Nothing fails here: a workload whose tuning came to nothing is tuned when it is built, and its
    failure recorded there.

    Parameters
    ----------
    questions : iterable of (Workload, BackendTarget)
        What is going to be built. A target with a single workload is left to its builder.
    context : BuildContext
        Where to build, and what remembers choices.
    config : MeasureConfig
        Limits of time and memory, seed.
    policy : DevicePolicy
        Of the device: nothing is tuned where that would disturb what is timed.
    report : callable
        Told what begins, and in the end what failed.
    """

    def __init__(
        self,
        questions: Iterable[Question],
        context: BuildContext,
        config: MeasureConfig,
        policy: DevicePolicy,
        report: Callable[[str], None],
    ) -> None:
        self._context, self._config, self._policy, self._report = context, config, policy, report
        self._lock = threading.Lock()
        self._closed = False
        self._news = threading.Event()
        self._tuned: set[Question] = set()
        self._workers: set[WorkerProcess] = set()
        by_target: dict[BackendTarget, list[Workload]] = {}
        for workload, target in questions if policy.kind.compiles_beside else ():
            if isinstance(target.implementation, Tunable):
                by_target.setdefault(target, []).append(workload)
        wanted = {target: found for target, found in by_target.items() if len(found) > 1}
        self._pool = ThreadPoolExecutor(max(1, len(wanted)), thread_name_prefix="collage-tuning")
        self._running: dict[BackendTarget, Future[str]] = {}
        for target, found in wanted.items():
            report(f"{target.name} chooses kernels for {len(found)} candidates")
            future = self._pool.submit(self._tune, target, found)
            future.add_done_callback(lambda _: self._news.set())
            self._running[target] = future

    def __enter__(self) -> Tuning:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close_after(self, deadline: float) -> None:
        """Close, when it is past that time on the monotonic clock."""
        if time.monotonic() > deadline:
            self.close()

    def close(self) -> None:
        """End what still runs; choices that were made are remembered."""
        if self._closed:
            return
        ended = [target for target, future in self._running.items() if future.done()]
        with self._lock:
            self._closed = True
            for worker in self._workers:
                worker.kill()
        self._pool.shutdown()
        for target in ended:
            if reason := self._running[target].result():
                self._report(f"{target.name} did not tune all at once: {reason}")

    def is_under_way(self, workload: Workload, target: BackendTarget) -> bool:
        """Whether a workload must wait for what is still being tuned.

        Parameters
        ----------
        workload : Workload
            One that came later waits for all of its target's: they take the cores that it needs.
        target : BackendTarget
            What it is to be built for.

        Returns
        -------
        bool
            False once it is chosen for, or nothing is tuned for its target.
        """
        future = self._running.get(target)
        return future is not None and not future.done() and (workload, target) not in self._tuned

    def wait(self, timeout_sec: float) -> None:
        """Wait until something more is tuned, at most for so long."""
        self._news.wait(timeout_sec)
        self._news.clear()

    def _tune(self, target: BackendTarget, workloads: Sequence[Workload]) -> str:
        """Why it came to nothing; empty when it did not."""
        # Linux ends a worker with the thread that started it, which waits for it here.
        with self._lock:
            if self._closed:
                return ""
            worker = WorkerProcess(
                plugins_for([target]),
                memory_limit_bytes=self._config.memory_limit_bytes,
                policy=self._policy,
                niceness=self._policy.kind.niceness,
            )
            self._workers.add(worker)
        request = Tune(
            tuple(WorkloadMessage.of(workload) for workload in workloads),
            TargetMessage.of(target),
            self._context,
            self._config.seed,
        )
        # As long as their builders might take one after the other.
        limit_sec = len(workloads) * self._policy.build_timeout_sec(self._config)
        try:
            worker.send(request, limit_sec)
            while isinstance(answer := worker.receive(Tuned), Tuned) and not answer.is_over:
                self._tuned |= {(workloads[index], target) for index in answer.workloads}
                self._news.set()
        except WorkerFailure as err:
            return f"the process {err.reason}"
        except MeasurementError as err:
            return str(err)
        finally:
            with self._lock:
                # Once it is gone its number may be another process's, which must not be killed.
                self._workers.discard(worker)
            worker.close()
        return answer.reason if isinstance(answer, Failure) else ""
