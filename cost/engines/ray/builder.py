"""Builds on the nodes of a cluster: whoever is free gets the next one."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from collage.backends.contract import Tunable
from collage.backends.contract.errors import ProtocolError
from collage.cost.base import CostStatus
from collage.cost.engines.findings import HeadFindings
from collage.cost.engines.ray.cluster import Cluster
from collage.cost.engines.ray.fleet import Fleet
from collage.cost.engines.ray.life import LOOK_SEC
from collage.cost.engines.ray.link import Link
from collage.cost.engines.ray.messages import AnyReply, BuildOrder, BuildReply
from collage.cost.engines.shipping import unpack
from collage.cost.measure.builder import (
    BuildDone,
    Builder,
    BuildJob,
    BuildResult,
    More,
    NumberedJobs,
    nobody_waits,
    nothing_more,
)
from collage.cost.measure.engine import Work
from collage.cost.measure.runner import PlaceLostError
from collage.cost.processes.described import TargetMessage, WorkloadMessage

_SLACK_SEC = 300.0
"""For starting a process and for packing, beyond a build's own limit."""

_MOST_TRIES = 5
"""Hosts that may be lost with one candidate, which is set aside then: nothing is said of it."""


@dataclass(frozen=True)
class _Running:
    index: int
    link: Link


class RayBuilder(Builder):
    """Compiles on every node that has cores.

    Parameters
    ----------
    cluster : Cluster
        Of the fleet.
    fleet : Fleet
        Whose builders are asked.
    work : Work
        Limits, and the log that findings come into.
    plugins : sequence of str
        For backends registered at run time.
    """

    def __init__(self, cluster: Cluster, fleet: Fleet, work: Work, plugins: Sequence[str]) -> None:
        self._cluster, self._fleet, self._work = cluster, fleet, work
        self._plugins = tuple(plugins)
        self._findings = HeadFindings(work.context)
        self._told: dict[tuple[Link, int], set[str]] = {}

    def close(self) -> None:
        for link in {link for link, _ in self._told}:
            link.close()
        self._told.clear()

    def build(
        self,
        jobs: Sequence[BuildJob],
        done: BuildDone = nobody_waits,
        more: More = nothing_more,
    ) -> list[BuildResult]:
        numbered = NumberedJobs(jobs, done, more)
        known, results = numbered.known, numbered.results
        waiting = deque(range(len(jobs)))
        running: dict[Any, _Running] = {}
        tries: Counter[int] = Counter()

        def again(index: int, reason: str) -> None:
            tries[index] += 1
            if tries[index] < _MOST_TRIES:
                waiting.appendleft(index)
                return
            words = f"{tries[index]} workers were lost with it, the last one because: {reason}"
            numbered.take(index, BuildResult(CostStatus.UNKNOWN, words))

        def another() -> bool:
            if (index := numbered.another()) is not None:
                waiting.append(index)
            return index is not None

        if not (jobs or another()):
            return []
        self._findings.refresh()
        self._fleet.builders()  # Or an error that says why there is none.
        try:
            while True:
                self._work.deadline.check()
                self._hand_out(known, waiting, running, another)
                if len(results) == len(known):
                    break
                for reference in self._ended(running, again):
                    index, link = running[reference].index, running.pop(reference).link
                    try:
                        reply, files = link.finish(reference)
                        result = self._take(known[index], link, reply, files)
                    except PlaceLostError as err:
                        again(index, str(err))
                        continue
                    numbered.take(index, result)
        except BaseException:
            # A deadline or an interrupt: nobody will read what is under way.
            for link in {entry.link for entry in running.values()}:
                link.stop()
            raise
        return numbered.in_order()

    def _hand_out(
        self,
        jobs: Sequence[BuildJob],
        waiting: deque[int],
        running: dict[Any, _Running],
        another: Callable[[], bool],
    ) -> None:
        busy = Counter(entry.link for entry in running.values())
        for link in self._fleet.builders_now():
            try:
                while (
                    busy[link] < link.settings.builds
                    and link.is_ready()
                    and (waiting or another())
                    and (index := self._next(jobs, waiting, link)) is not None
                ):
                    try:
                        reference = self._begin(jobs[index], link)
                    except PlaceLostError:
                        waiting.appendleft(index)
                        raise
                    running[reference] = _Running(index, link)
                    busy[link] += 1
            except PlaceLostError:
                continue  # The fleet sees it too, and finds another one.

    def _next(self, jobs: Sequence[BuildJob], waiting: deque[int], link: Link) -> int | None:
        """What a host can build; those backends that try things out need a device beside it."""
        for index in waiting:
            tunes = isinstance(jobs[index].target.implementation, Tunable)
            if not tunes or self._fleet.has_device(link) or not self._fleet.tunes_anywhere():
                waiting.remove(index)
                return index
        return None

    def _begin(self, job: BuildJob, link: Link) -> Any:
        known = self._told.setdefault((link, link.born), set())
        lines = self._findings.of(job.target.backend, known)
        order = BuildOrder(
            WorkloadMessage.of(job.workload),
            TargetMessage.of(job.target),
            self._plugins,
            tuple(lines),
        )
        limit_sec = self._work.policy.build_timeout_sec(self._work.config) + _SLACK_SEC
        reference = link.begin(order, (), limit_sec)
        known.update(lines)
        return reference

    def _ended(
        self, running: dict[Any, _Running], again: Callable[[int, str], None]
    ) -> Iterable[Any]:
        """Those that have a reply; what a silent host was at is done again."""
        if not running:
            self._work.deadline.check()
            self._wait_for_anybody()
            return []
        ready: list[Any]
        ready, _ = self._cluster.ray.wait(list(running), num_returns=1, timeout=LOOK_SEC)
        for link in {entry.link for entry in running.values()}:
            try:
                link.check()
            except PlaceLostError as err:
                for reference in [r for r, entry in running.items() if entry.link is link]:
                    if reference not in ready:
                        again(running.pop(reference).index, str(err))
        return ready

    def _wait_for_anybody(self) -> None:
        links = self._fleet.builders()
        for link in links:
            try:
                if link.is_ready(LOOK_SEC / len(links)):
                    return
            except PlaceLostError:
                continue

    def _take(self, job: BuildJob, link: Link, reply: AnyReply, files: list[bytes]) -> BuildResult:
        """A reply, checked; one that makes no sense is the host's fault."""
        try:
            if not isinstance(reply, BuildReply) or len(files) != (
                reply.status is CostStatus.VALID
            ):
                raise ProtocolError("it is no reply to a build", value=reply)
            self._findings.take(reply.findings)
            self._told.setdefault((link, link.born), set()).update(reply.findings)
            if reply.status is not CostStatus.VALID:
                return BuildResult(reply.status, reply.reason)
            unpack(files[0], job.folder, self._work.config.memory_limit_bytes)
        except ProtocolError as err:
            raise link.lose(f"its reply cannot be used: {err}") from err
        return BuildResult(CostStatus.VALID, "", job.folder / "model.so", reply.build_sec)
