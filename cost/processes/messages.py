"""What a search asks of its worker processes, and what these answer.

Every request is answered by the one type that its docstring names, by :class:`Failure`, or by
:class:`Unreadable`. Paths are of files that both processes see.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from collage.backends.contract import BuildContext
from collage.backends.link import CompiledLibrary
from collage.cost.base import Clocks, CostStatus
from collage.cost.call_times import CallTime
from collage.cost.config import MeasureConfig
from collage.cost.device import Device
from collage.cost.processes.described import TargetMessage, WorkloadMessage
from collage.cost.processes.protocol import Message


class Request(Message, frozen=True, tag_field="task"):
    """What a worker is to do."""


class Build(Request, frozen=True, tag="build"):
    """Compile a workload into ``folder``, with test data beside it; answered by :class:`Built`.

    Attributes
    ----------
    references : Path
        Folder of the references that several workloads share.
    seed : int
        Of weights and inputs.
    """

    workload: WorkloadMessage
    target: TargetMessage
    folder: Path
    references: Path
    context: BuildContext
    seed: int


class Tune(Request, frozen=True, tag="tune"):
    """Choose what runs many workloads; answered by one :class:`Tuned` after the other."""

    workloads: tuple[WorkloadMessage, ...]
    target: TargetMessage
    context: BuildContext
    seed: int


class CompileModel(Request, frozen=True, tag="compile_model"):
    """Compile a whole model; answered by :class:`Compiled`.

    Attributes
    ----------
    module, weights : Path
        From :func:`collage.cost.workload.shared_weights.write_modules`.
    output : Path
        The library to write.
    """

    module: Path
    weights: Path
    output: Path
    targets: tuple[TargetMessage, ...]
    context: BuildContext


class LibraryRequest(Request, frozen=True):
    """Something to do with a library and its test data.

    Attributes
    ----------
    samples : tuple of Path
        Folders, each of a :class:`collage.cost.reference.Sample`, the first of which is timed on.
    """

    library: Path
    samples: tuple[Path, ...]
    config: MeasureConfig


class Run(LibraryRequest, frozen=True, tag="run"):
    """Load, check, time, check again, and let go; answered by :class:`Measured`."""


class Prepare(LibraryRequest, frozen=True, tag="prepare"):
    """Do what of :class:`Run` comes before the first call; answered by :class:`Done`."""


class Measure(Request, frozen=True, tag="measure"):
    """Call and time what was prepared, right or wrong; answered by :class:`Done`."""


class Judge(Request, frozen=True, tag="judge"):
    """Check what was measured, and let go; answered by :class:`Measured`."""


class Load(LibraryRequest, frozen=True, tag="load"):
    """Load a library, which stays under a name, and check it; answered by :class:`Checked`."""

    name: str


class Time(Request, frozen=True, tag="time"):
    """Time what was loaded; answered by :class:`Timed`.

    Attributes
    ----------
    name : str
        Under which it was loaded.
    as_part : bool
        Whether it is a candidate, which takes what it would inside a model, or a whole model.
    """

    name: str
    as_part: bool


class Check(Request, frozen=True, tag="check"):
    """Check what was loaded once more; answered by :class:`Checked`."""

    name: str


class TimeCalls(Request, frozen=True, tag="time_calls"):
    """Time each call inside what was loaded, which is of no other use afterwards; answered by
    :class:`TimedCalls`."""

    name: str


class Connect(Request, frozen=True, tag="connect"):
    """Begin a session with TVM's RPC server, which libraries are run in from now on; answered by
    :class:`Detected`.

    Attributes
    ----------
    host, port : str, int
        Of the server.
    match_key : str
        With which the tracker gave it away.
    kind : str
        Of its device.
    fingerprint : str
        What the device is called if it cannot tell; empty where it can.
    guard : Path
        The library that watches over the session there.
    session_timeout_sec : float
        When the server ends the session, whatever goes on.
    idle_sec : float
        When the session ends because nobody asked for anything.
    data_limit_bytes : int
        What it may allocate after it has started; 0 for no limit.
    """

    host: str
    port: int
    match_key: str
    kind: str
    fingerprint: str
    guard: Path
    session_timeout_sec: float
    idle_sec: float
    data_limit_bytes: int


AnyRequest = (
    Build
    | Tune
    | CompileModel
    | Run
    | Prepare
    | Measure
    | Judge
    | Load
    | Time
    | Check
    | TimeCalls
    | Connect
)


class Answer(Message, frozen=True, tag_field="answer", kw_only=True):
    """What came of a request.

    Attributes
    ----------
    replace : bool
        Whether the worker is of no further use.
    """

    replace: bool = False


A = TypeVar("A", bound=Answer)


class Done(Answer, frozen=True, tag="done"):
    """It was done."""


class Tuned(Answer, frozen=True, tag="tuned", kw_only=True):
    """More is chosen.

    Attributes
    ----------
    workloads : tuple of int
        Those that can be built now without anything being tried out, by their indices.
    is_over : bool
        Whether nothing else is going to be chosen: the last answer.
    """

    workloads: tuple[int, ...]
    is_over: bool


class Built(Answer, frozen=True, tag="built", kw_only=True):
    """Wall time in the worker, the reference's evaluation included."""

    library: Path
    build_sec: float


class Compiled(Answer, frozen=True, tag="compiled", kw_only=True):
    """A whole model's library, with what it needs staged beside it."""

    library: CompiledLibrary


class Checked(Answer, frozen=True, tag="checked", kw_only=True):
    """The outputs are right.

    Attributes
    ----------
    largest_error : float
        Relative to the largest value of an output.
    first_call_sec : float
        The call that makes primitives and packs weights.
    """

    largest_error: float
    first_call_sec: float


class Timed(Answer, frozen=True, tag="timed", kw_only=True):
    """Seconds per call, and the device's clocks right after."""

    samples_sec: tuple[float, ...]
    clocks: Clocks | None


class TimedCalls(Answer, frozen=True, tag="timed_calls", kw_only=True):
    """Each call inside a model, in their order; none where they cannot be seen."""

    calls: tuple[CallTime, ...]


class Measured(Answer, frozen=True, tag="measured", kw_only=True):
    """All that :class:`Checked` and :class:`Timed` say, of outputs that were right throughout."""

    largest_error: float
    first_call_sec: float
    samples_sec: tuple[float, ...]
    clocks: Clocks | None


class Detected(Answer, frozen=True, tag="detected", kw_only=True):
    """The device at the other end, and how busy its machine is.

    Attributes
    ----------
    load : float or None
        Processes that run there and want to, for each core, over the last minute.
    """

    device: Device
    load: float | None


class Failure(Answer, frozen=True, tag="failure", kw_only=True):
    """What was to be done failed, or the result was wrong: not valid, and why in one line.

    Raises
    ------
    ValueError
        For the status of what succeeded.
    """

    status: CostStatus
    reason: str

    def __post_init__(self) -> None:
        if self.status is CostStatus.VALID:
            raise ValueError("a failure is not valid")


class Unreadable(Answer, frozen=True, tag="unreadable", kw_only=True):
    """The request could not be read."""

    reason: str
