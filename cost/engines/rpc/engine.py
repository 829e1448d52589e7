"""The engine over TVM's own RPC tracker and servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from collage.backends.contract.context import default_context
from collage.backends.contract.errors import MeasurementError, WorkersError
from collage.cost.config import MeasureConfig
from collage.cost.device import DevicePolicy
from collage.cost.engines.named import WorkersUrl
from collage.cost.engines.rpc.guard import guard_library
from collage.cost.engines.rpc.model_timer import RpcModelTimer
from collage.cost.engines.rpc.runner import RpcRunner
from collage.cost.engines.rpc.server_wait import ServerWait
from collage.cost.engines.rpc.sessions import PlaceUnfitError, RpcOptions, RpcSession, Sessions
from collage.cost.engines.rpc.tracker import Summary, Tracker
from collage.cost.measure.builder import Builder
from collage.cost.measure.engine import Engine, Place, Work, WorkerInfo, Workers, in_turns
from collage.cost.measure.local_builder import LocalBuilder
from collage.cost.measure.runner import PlaceLostError
from collage.cost.measure.whole_models.model_timer import ModelTimer
from collage.cost.progress import ProgressCallback

DEFAULT_PORT = 9190
"""The one that TVM's tracker takes by itself."""

_INSPECT_SEC = 2.0
"""How long one who only asks waits for a server."""

_MOST_REFUSALS = 2
"""By one and the same server, which may have gone away when it was to be used first."""

_NAMES = {
    "key": "key",
    "priority": "priority",
    "session_timeout": "session_timeout_sec",
    "idle": "idle_sec",
    "patience": "patience_sec",
    "wait": "wait_sec",
    "fingerprint": "fingerprint",
}
"""Options of the address, by what they are called there."""


class RpcEngine(Engine):
    """Boards and GPUs behind a tracker: built for here, uploaded, timed there.

    The servers need TVM's runtime alone. There are as many places as the tracker has servers of the
    key; whichever server is free takes what comes next.

    Parameters
    ----------
    tracker : Tracker
        Has the servers.
    options : RpcOptions
        Which of them, and for how long.

    Examples
    --------
    >>> engine = RpcEngine.from_url(WorkersUrl.parse("rpc://tracker:9190?key=h100"))
    """

    def __init__(self, tracker: Tracker, options: RpcOptions) -> None:
        self._tracker = tracker
        self._options = options

    @classmethod
    def from_url(cls, url: WorkersUrl) -> RpcEngine:
        """The servers that a name means.

        Parameters
        ----------
        url : WorkersUrl
            ``rpc://tracker:9190?key=h100``.

        Raises
        ------
        WorkersError
            When there is no such option, or the tracker's address is missing. A key that is missing
            is one when servers are looked for: the tracker knows which there are.
        """
        given = url.only(*_NAMES)
        values = {"key": ""} | {_NAMES[name]: text for name, text in given.items()}
        try:
            options = msgspec.convert(values, RpcOptions, strict=False)
        except msgspec.ValidationError as err:
            raise WorkersError(f"workers '{url.text}': {err}", value=url.text) from err
        return cls(Tracker(*url.address(DEFAULT_PORT)), options)

    def open(self, work: Work) -> Workers:
        sessions = Sessions(self._tracker, self._options, work, guard_library(work.context))
        sessions.device = work.device
        first, servers = self._first(sessions)
        first.close()
        sessions.device = first.detected.device
        return _RpcWorkers(sessions, servers)

    def _first(self, sessions: Sessions) -> tuple[RpcSession, int]:
        """A session with the first server that can be used, and how many there are.

        Raises
        ------
        MeasurementError
            When no key was named, none could be had for as long as the options say, or one that
            can be had is of no use.
        """
        waiting, refused = ServerWait(sessions), Counter[object]()
        while True:
            try:
                summary = self._servers()
                found = waiting.take()
            except MeasurementError as err:
                refused[err.value] += 1
                if not self._options.key:
                    raise
                if isinstance(err, PlaceUnfitError) and refused[err.value] == _MOST_REFUSALS:
                    raise MeasurementError(
                        f"none of the {len(summary.servers)} servers of key '{self._options.key}' "
                        f"at {self._tracker.address} can be used: {err}",
                        value=self._options.key,
                    ) from err
                waiting.wait(str(err))
            else:
                waiting.is_over()
                return found, len(summary.servers)

    def inspect(self, policy: DevicePolicy) -> list[WorkerInfo]:
        servers = self._servers().servers
        work = Work(policy, default_context(), MeasureConfig())
        sessions = Sessions(self._tracker, self._options, work, guard_library(work.context))
        # Who asks for all of them at once gets each of them once.
        with ThreadPoolExecutor(len(servers)) as pool:
            taken = list(pool.map(lambda _: _ask_one(sessions), servers))
        found = {one.grant.address: one for one in taken if isinstance(one, RpcSession)}
        failed = [one for one in taken if isinstance(one, str)]
        for session in found.values():
            session.close()
        first = next((found[name].detected.device for name in servers if name in found), None)
        infos = []
        for number, address in enumerate(servers, 1):
            name = f"{self._options.key} {number}"
            if address in found:
                seen = found[address].detected
                reason = "" if seen.device == first else f"it is not like the first: {first}"
                infos.append(WorkerInfo(name, address, seen.device, load=seen.load, reason=reason))
            else:
                mine = (words for words in failed if address in words)
                infos.append(
                    WorkerInfo(
                        name, address, reason=next(mine, "somebody else uses it, or it hangs")
                    )
                )
        return infos

    def _servers(self) -> Summary:
        """What the tracker has of the key.

        Raises
        ------
        MeasurementError
            When there is no tracker, or it has none of them.
        """
        options = self._options
        summary = self._tracker.summary(options.key)
        if not options.key or not summary.servers:
            there = ", ".join(f"{key} ({count})" for key, count in summary.keys.items())
            what = f"no server of key '{options.key}'" if options.key else "no key was named"
            raise MeasurementError(
                f"{what}: the tracker at {self._tracker.address} has {there or 'no servers'}; "
                f"write rpc://{self._tracker.address}?key=NAME",
                value=options.key,
            )
        return summary


def _ask_one(sessions: Sessions) -> RpcSession | str:
    """A session with some server, or why there is none."""
    try:
        return sessions.take(_INSPECT_SEC)
    except PlaceLostError as err:
        return str(err)


class _RpcWorkers(Workers):
    """Servers of one key, and builders of this machine.

    Parameters
    ----------
    sessions : Sessions
        Takes servers; knows the device of all of them.
    servers : int
        How many there are.
    """

    builds_beside = True

    def __init__(self, sessions: Sessions, servers: int) -> None:
        assert sessions.device is not None
        self.device = sessions.device
        self._sessions = sessions
        key = sessions.options.key
        self._names = tuple(f"{key} {number}" for number in range(1, servers + 1))
        self._runners = {name: RpcRunner(sessions) for name in self._names}
        # A whole model takes the session of the first, which times no candidate meanwhile.
        self._holds = {name: in_turns() for name in self._names}

    @property
    def places(self) -> Sequence[Place]:  # type: ignore[override]
        """As many as there are servers; one that was lost is another one when a server is free.

        Where none is left, one is waited for.

        Raises
        ------
        MeasurementError
            When there is none for as long as a first one would be waited for.
        OutOfTimeError
            When the deadline comes first.
        """
        waiting = ServerWait(self._sessions)
        while True:
            reason = self._take_back()
            left = [name for name in self._names if not self._runners[name].is_lost]
            if left:
                waiting.is_over()
                return tuple(Place(name, self._runners[name], self._holds[name]) for name in left)
            waiting.wait(reason)

    def _take_back(self) -> str:
        """Replace lost runners where servers are free; why there are none, where there are not."""
        lost = [name for name in self._names if self._runners[name].is_lost]
        if not lost:
            return ""
        try:
            summary = self._sessions.tracker.summary(self._sessions.options.key)
        except MeasurementError as err:
            return str(err)
        for name in lost[: summary.free]:
            self._runners[name] = RpcRunner(self._sessions)
        count = len(summary.servers)
        return f"others have all {count} of them" if count else "all of them are away"

    def close(self) -> None:
        for runner in self._runners.values():
            runner.close()

    @property
    def parallel_builds(self) -> int:
        work = self._sessions.work
        return work.parallel_builds or work.policy.builders()

    def builder(self, plugins: Sequence[str]) -> Builder:
        work = self._sessions.work
        return LocalBuilder(
            work.context, work.config, plugins, self.parallel_builds, work.policy, work.deadline
        )

    def timer(self, progress: ProgressCallback) -> ModelTimer:
        return RpcModelTimer(self._sessions, self.places[0].runner.close, progress)
