"""Sessions with the servers of one key: taken from the tracker, given back when they end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from collage.backends.contract.errors import MeasurementError
from collage.cost.deadline import Deadline
from collage.cost.device import Device
from collage.cost.engines.rpc.tracker import Grant, Tracker
from collage.cost.measure.engine import Work
from collage.cost.measure.runner import PlaceAwayError
from collage.cost.processes.failure import WorkerFailure
from collage.cost.processes.messages import Connect, Detected, Failure
from collage.cost.processes.worker_process import WorkerProcess


class PlaceUnfitError(PlaceAwayError):
    """A server was given that cannot be used; its ``value`` is the address."""


@dataclass(frozen=True)
class RpcOptions:
    """What a user may say of the servers of one key.

    Attributes
    ----------
    key : str
        Of the servers at the tracker.
    priority : int
        Requests of a higher one are served first.
    session_timeout_sec : float
        A server ends a session that is older, whatever goes on: what a machine that was cut off
        may hold it for.
    idle_sec : float
        A session that nobody asks for anything ends by itself after so long.
    patience_sec : float
        How long a server may be silent besides what it is asked to do.
    wait_sec : float
        How long to wait for a server where there is none, the tracker is away, or others have them
        all: at the beginning, and whenever the last one is gone.
    fingerprint : str
        What the device is called, where it cannot tell.

    Examples
    --------
    >>> RpcOptions("h100").priority
    1
    """

    key: str
    priority: int = 1
    session_timeout_sec: float = 900.0
    idle_sec: float = 30.0
    patience_sec: float = 30.0
    wait_sec: float = 60.0
    fingerprint: str = ""


@dataclass
class RpcSession:
    """One session: a process here that speaks with a server.

    Attributes
    ----------
    grant : Grant
        Which server.
    worker : WorkerProcess
        Speaks with it.
    detected : Detected
        What is there.
    """

    grant: Grant
    worker: WorkerProcess
    detected: Detected

    def close(self) -> None:
        """Give the server back."""
        self.worker.close()


@dataclass
class Sessions:
    """Takes servers of one key.

    Attributes
    ----------
    tracker : Tracker
        Has them.
    options : RpcOptions
        Which, and for how long.
    work : Work
        What for.
    guard : Path
        See :func:`collage.cost.engines.rpc.guard.guard_library`.
    device : Device or None
        What every server's must be; None for whatever it is.
    """

    tracker: Tracker
    options: RpcOptions
    work: Work
    guard: Path
    device: Device | None = None

    def until(self, deadline: Deadline) -> Sessions:
        """The same, for something that has to be over then.

        Parameters
        ----------
        deadline : Deadline
            In place of the work's own, which is for candidates.
        """
        return replace(self, work=replace(self.work, deadline=deadline))

    @property
    def run_limit_sec(self) -> float:
        """What checking and timing a candidate may take, as seen from here; what is over there
        looks at its own clock."""
        return self.work.policy.run_timeout_sec(self.work.config) + self.options.patience_sec

    def take(self, wait_sec: float, worker: WorkerProcess | None = None) -> RpcSession:
        """A session with a server that nobody else has.

        Parameters
        ----------
        wait_sec : float
            How long to wait for one that is free.
        worker : WorkerProcess, optional
            One that has lost its session; it is closed when it gets none.

        Returns
        -------
        RpcSession
            Connected; the caller closes it.

        Raises
        ------
        PlaceAwayError
            When there is none until then, or it cannot be used (:class:`PlaceUnfitError`).
        OutOfTimeError
            When the deadline comes first.
        """
        options, work = self.options, self.work
        worker = worker or WorkerProcess(
            memory_limit_bytes=work.config.memory_limit_bytes,
            policy=work.policy,
            deadline=work.deadline,
        )
        try:
            grant = self.tracker.request(options.key, options.priority, wait_sec, work.deadline)
            if grant is None:
                raise PlaceAwayError(
                    f"no server of key '{options.key}' is free at {self.tracker.address}",
                    value=options.key,
                )
            return RpcSession(grant, worker, self._connect(worker, grant))
        except PlaceAwayError:
            worker.close()
            raise
        except MeasurementError as err:
            worker.close()
            raise PlaceAwayError(str(err), value=err.value) from err
        except BaseException:
            worker.close()
            raise

    def _connect(self, worker: WorkerProcess, grant: Grant) -> Detected:
        work, options = self.work, self.options
        request = Connect(
            grant.host,
            grant.port,
            grant.match_key,
            work.policy.kind.name,
            options.fingerprint,
            self.guard,
            options.session_timeout_sec,
            options.idle_sec,
            0 if work.policy.has_context else 2 * work.config.memory_limit_bytes,
        )
        try:
            worker.send(request, options.patience_sec)
            answer = worker.receive(Detected)
        except WorkerFailure as err:
            raise PlaceAwayError(f"{grant.address}: the session {err.reason}") from err
        if isinstance(answer, Failure):
            raise PlaceUnfitError(f"{grant.address}: {answer.reason}", value=grant.address)
        if self.device is not None and answer.device != self.device:
            raise PlaceUnfitError(
                f"{grant.address} is another device than the others of key "
                f"'{options.key}': {answer.device}, not {self.device}",
                value=grant.address,
            )
        return answer
