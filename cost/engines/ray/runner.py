"""Times candidates and whole models on a node of a cluster."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

from collage.cost.deadline import NEVER, Deadline
from collage.cost.engines.ray.fleet import Fleet
from collage.cost.engines.ray.link import Link
from collage.cost.engines.ray.messages import (
    AnyReply,
    ModelsOrder,
    OthersOrder,
    OthersReply,
    RestOrder,
    RunOrder,
    RunReply,
    WarmOrder,
)
from collage.cost.engines.shipping import pack
from collage.cost.measure.engine import Work
from collage.cost.measure.replay import NO_TIME
from collage.cost.measure.runner import PlaceLostError, RunJob, Runner, RunResult
from collage.cost.measure.whole_models.model_timer import EndToEndQuestion, ModelTimer
from collage.cost.progress import ProgressCallback

_SLACK_SEC = 300.0
"""For starting processes and for unpacking, beyond a run's own limit, which may be used twice."""

_MODEL_BYTES = 4
"""How much more than a candidate a whole model may hold, as for running it."""


class RayRunner(Runner):
    """Times one library at a time on one node's device, whose lock the node itself takes.

    Parameters
    ----------
    link : Link
        To a host that times.
    work : Work
        Limits and the deadline.
    """

    def __init__(self, link: Link, work: Work) -> None:
        self.link = link
        self._work = work

    def run(self, job: RunJob) -> RunResult:
        limit = self._work.config.memory_limit_bytes
        folders = dict.fromkeys((job.library.parent, job.sample))
        files = [pack(folder, limit) for folder in folders]
        limit_sec = 2 * self._work.policy.run_timeout_sec(self._work.config) + _SLACK_SEC
        order = RunOrder(job.library.name)
        reply = self.link.ask(order, files, self._work.deadline, limit_sec=limit_sec)
        return _results(self.link, reply, 1)[0]

    def warm_up(self) -> None:
        """Start the host, and have it start its process."""
        self.link.start()
        self.link.begin(WarmOrder())

    def others(self) -> str:
        """As :meth:`Runner.others`, of the device that the host has.

        Raises
        ------
        PlaceLostError
            When the host is gone, or answers something else.
        PlaceAwayError
            When it was not there to begin with.
        OutOfTimeError
            When the deadline comes first.
        """
        reply = self.link.ask(OthersOrder(), (), self._work.deadline)
        if not isinstance(reply, OthersReply):
            raise self.link.lose("its reply is none to what it was asked")
        return reply.others

    def close(self) -> None:
        self.link.rest(RestOrder())


class RayTimer(ModelTimer):
    """Times whole models on one device of a cluster; on another one, all anew, when it is lost.

    Parameters
    ----------
    fleet : Fleet
        Who times.
    work : Work
        Limits.
    progress : callable
        Informed of each turn.
    """

    def __init__(self, fleet: Fleet, work: Work, progress: ProgressCallback) -> None:
        self._fleet, self._work, self._progress = fleet, work, progress

    def measure(
        self, question: EndToEndQuestion, libraries: Sequence[Path], deadline: Deadline = NEVER
    ) -> list[RunResult]:
        if deadline.is_up:
            return [RunResult(NO_TIME) for _ in libraries]
        while True:
            link = self._fleet.timers(deadline)[0]
            try:
                return self._measure(link, question, libraries, deadline)
            except PlaceLostError:
                # The fleet leaves it out; when nobody is left, it says so.
                continue

    def _measure(
        self,
        link: Link,
        question: EndToEndQuestion,
        libraries: Sequence[Path],
        deadline: Deadline,
    ) -> list[RunResult]:
        # Candidates are not timed meanwhile, and their process would be in the way.
        samples = []
        for sample in question.samples:
            with tempfile.TemporaryDirectory(dir=self._work.context.work_dir) as name:
                sample.save(Path(name) / "sample")
                samples.append(self._ship(link, Path(name) / "sample", deadline))
        shipped = [(self._ship(link, one.parent, deadline), one.name) for one in libraries]
        order = ModelsOrder.of(question, shipped, samples)
        return _results(link, link.ask(order, (), deadline, self._progress), len(libraries))

    def _ship(self, link: Link, folder: Path, deadline: Deadline) -> str:
        """The digest of a folder's files, which the host has from then on."""
        limit = _MODEL_BYTES * self._work.config.memory_limit_bytes
        archive = pack(folder, limit)
        digest = hashlib.sha256(archive).hexdigest()
        if link.call(lambda actor: actor.lacks.remote([digest]), deadline):
            problem = link.call(lambda actor: actor.keep.remote(digest, archive, limit), deadline)
            if problem:
                raise link.lose(f"it cannot keep a model: {problem}")
        return digest


def _results(link: Link, reply: AnyReply, count: int) -> list[RunResult]:
    if not isinstance(reply, RunReply) or len(reply.results) != count:
        raise link.lose("its reply is none to what it was asked")
    return list(reply.results)
