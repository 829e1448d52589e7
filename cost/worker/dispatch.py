"""What worker processes do: the requests they answer."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from collage.backends.contract.errors import CollageError, ProtocolError, telling_line
from collage.cost.base import CostStatus
from collage.cost.processes.crowding import FULL, says_full
from collage.cost.processes.messages import (
    Answer,
    AnyRequest,
    Build,
    Check,
    CompileModel,
    Connect,
    Failure,
    Judge,
    Load,
    Measure,
    Prepare,
    Run,
    Time,
    TimeCalls,
    Tune,
    Unreadable,
)
from collage.cost.processes.protocol import decode, encode
from collage.cost.worker.build import build, compile_model, tune
from collage.cost.worker.memory import give_back
from collage.cost.worker.run import RunService
from collage.cost.worker.session import DeviceLostError, SessionLostError

_BUILDING = (Build, Tune, CompileModel)
_OUT_OF_MEMORY = ("bad_alloc", "out of memory", "OUT_OF_MEMORY", "MemoryAllocation")
"""How C++, the CUDA runtime and the driver say it."""

_KILLED = re.compile(
    r"(Killed|Terminated) signal terminated program"  # gcc
    r"|terminated with signal (9|15)\b"  # its linker
    r"|died due to signal (9|15)\b"  # nvcc
    r"|unable to execute command: (Killed|Terminated)"  # clang
    r"|exit status -(9|15)\b"
    r"|Compilation error:\s+Command line:"  # TVM, of one that was not given the time to say a word
)
"""How it is said that a compiler, or a part of it, was ended from outside: by somebody, or by the
system to make room, which picks the largest."""


class Tasks:
    """The requests that one worker answers.

    Parameters
    ----------
    session : str
        ``module:Class`` of the :class:`Session` that libraries are run in.
    """

    def __init__(self, session: str) -> None:
        self._runs = RunService(session)

    def open_device(self) -> None:
        """See :meth:`RunService.open`."""
        self._runs.open()

    def answer(self, line: bytes, send: Callable[[bytes], None]) -> None:
        """Answer a request, whatever becomes of it.

        Parameters
        ----------
        line : bytes
            The request.
        send : callable
            Takes the answer, a line.
        """
        try:
            request: AnyRequest = decode(line, AnyRequest)
        except ProtocolError as err:
            send(encode(Unreadable(reason=str(err))))
            return
        if isinstance(request, _BUILDING):
            _keep_tools_in(request.context.work_dir)
        try:
            answer = self._do(request, send)
        except Exception as err:  # noqa: BLE001 (every failure of a candidate becomes a typed reason)
            # Sent while the exception still holds what it passed through: freeing device memory
            # after a fault would end the process first.
            send(encode(_failure(request, err, crowded=self._runs.crowded)))
        else:
            send(encode(answer))
        if isinstance(request, _BUILDING):
            # While others build or time, this one would keep copies of a whole model's weights.
            give_back()

    def _do(self, request: AnyRequest, send: Callable[[bytes], None]) -> Answer:
        match request:
            case Build():
                return build(request)
            case Tune():
                return tune(request, lambda tuned: send(encode(tuned)))
            case CompileModel():
                return compile_model(request)
            case Run():
                return self._runs.run(request)
            case Prepare():
                return self._runs.prepare(request)
            case Measure():
                return self._runs.measure(request)
            case Judge():
                return self._runs.judge(request)
            case Load():
                return self._runs.load(request)
            case Time():
                return self._runs.time(request)
            case Check():
                return self._runs.check(request)
            case TimeCalls():
                return self._runs.take_apart(request)
            case Connect():
                return self._runs.connect(request)


def _keep_tools_in(folder: Path) -> None:
    """Compilers put what lies between their stages into a folder that goes with the request.

    Where a builder is killed, they are too, and clean nothing up.
    """
    tempfile.gettempdir()  # Kept from now on: locks lie there, which other processes look for.
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(folder)


def _failure(request: AnyRequest, error: Exception, *, crowded: bool) -> Failure:
    """The answer that reports an exception as a typed status with a one-line reason."""
    text, reason = str(error), telling_line(error)
    building = isinstance(request, _BUILDING)
    if not isinstance(error, CollageError):
        reason = f"{type(error).__name__}: {reason}"
    if isinstance(error, SessionLostError):
        status = error.status
    elif isinstance(error, DeviceLostError) and error.crashed:
        status = CostStatus.CRASHED
    elif building and _KILLED.search(f"{text}\n{getattr(error, 'value', '')}"):
        status = CostStatus.UNKNOWN
    elif (building or crowded) and says_full(f"{text}\n{getattr(error, 'value', '')}"):
        status, reason = CostStatus.UNKNOWN, f"{FULL}: {reason}"
    elif isinstance(error, MemoryError) or any(words in text for words in _OUT_OF_MEMORY):
        status = CostStatus.OUT_OF_MEMORY
    else:
        status = CostStatus.BUILD_FAILED if building else CostStatus.RUN_FAILED
    lost = isinstance(error, DeviceLostError)
    return Failure(status=status, reason=reason[:300], replace=lost)
