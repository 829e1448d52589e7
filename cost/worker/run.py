"""A runner worker's work: load a library, check it against the reference, then time it."""

from __future__ import annotations

import gc
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import tvm
from msgspec.structs import replace
from numpy.typing import NDArray
from tvm import relax

from collage.backends.contract.errors import MeasurementError, PrecisionError
from collage.cost.base import CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.processes.messages import (
    Check,
    Checked,
    Connect,
    Detected,
    Done,
    Failure,
    Judge,
    LibraryRequest,
    Load,
    Measure,
    Measured,
    Prepare,
    Run,
    Time,
    TimeCalls,
    Timed,
    TimedCalls,
)
from collage.cost.reference import Distance, Noise, Sample, distance
from collage.cost.worker.session import Session

T = TypeVar("T")


class RunService:
    """Runs one library at a time; whole models stay loaded between their turns.

    On a device that others measure on too, a run is three requests, of which only the second needs
    the device to itself: :meth:`prepare`, :meth:`measure` and :meth:`judge`.

    Parameters
    ----------
    session : str
        ``module:Class`` of the :class:`Session` to run in, which is opened when it is needed: that
        may make a context on a device, which takes a moment.
    """

    def __init__(self, session: str) -> None:
        self._session_name = session
        self._opened: Session | None = None
        self._loaded: dict[str, _Loaded] = {}

    @property
    def _session(self) -> Session:
        if self._opened is None:
            self._opened = pkgutil.resolve_name(self._session_name)()
        return self._opened

    def open(self) -> None:
        """Begin to use the device, so that no candidate is charged for it.

        Raises
        ------
        MeasurementError
            When it cannot be used.
        """
        self._session.synchronize()

    @property
    def crowded(self) -> bool:
        """Whether others hold most of the device's memory; see :meth:`Session.crowded`."""
        return self._opened is not None and self._opened.crowded()

    def run(self, request: Run) -> Measured | Failure:
        """Load, check, time, check again, and let go."""

        def work() -> Measured | Failure:
            loaded = self._load(request)
            loaded.start()
            if isinstance(before := loaded.check(loaded.outputs()), Failure):
                return before
            return loaded.conclude(loaded.time(loaded.session.sample))

        return self._let_go(self._guarded(work))

    def prepare(self, request: Prepare) -> Done:
        """Load and upload what :meth:`run` is asked for; nothing is called yet."""
        self._guarded(lambda: self._load(request))
        return Done()

    def measure(self, _: Measure) -> Done:
        """Call and time what was prepared, right or wrong."""
        loaded = self._current()
        self._guarded(loaded.measure)
        return Done()

    def judge(self, _: Judge) -> Measured | Failure:
        """Check what was measured, and let go; answers as :meth:`run` does."""
        return self._let_go(self._guarded(self._current().judge))

    def load(self, request: Load) -> Checked | Failure:
        """Load a library and check it; it stays."""

        def work() -> Checked | Failure:
            loaded = self._load(request, request.name)
            loaded.start()
            loaded.session.settle(loaded.machine)
            checked = loaded.check(loaded.outputs())
            answer = checked if isinstance(checked, Failure) else loaded.check_others()
            loaded.session.rest(request.library)
            return answer

        return self._guarded(work, request.name)

    def time(self, request: Time) -> Timed:
        """Time a whole model that was loaded, or a candidate."""
        loaded = self._current(request.name)

        def work() -> Timed:
            loaded.resume()
            session = loaded.session
            return loaded.time(session.sample if request.as_part else session.sample_model)

        return self._guarded(work, request.name)

    def check(self, request: Check) -> Checked | Failure:
        """Check a loaded library once more."""
        loaded = self._current(request.name)

        def work() -> Checked | Failure:
            loaded.resume()
            return loaded.check(loaded.outputs())

        return self._guarded(work, request.name)

    def take_apart(self, request: TimeCalls) -> TimedCalls:
        """Time each call inside a whole model that was loaded."""
        loaded = self._current(request.name)

        def work() -> TimedCalls:
            loaded.resume()
            return TimedCalls(calls=loaded.session.take_apart(loaded.machine))

        return self._guarded(work, request.name)

    def connect(self, request: Connect) -> Detected:
        """Run libraries on another machine; what ran before is let go."""
        # Nobody but who needs it imports TVM's RPC.
        from collage.cost.worker.rpc.session import RpcSession

        self._loaded.clear()
        self._opened = None
        gc.collect()  # An error's trace may still hold the session before, and so its server.
        session = RpcSession(request)
        detected = session.detect()
        self._opened = session
        return detected

    def _load(self, request: LibraryRequest, name: str = "") -> _Loaded:
        self._loaded[name] = _Loaded(request, self._session)
        return self._loaded[name]

    def _let_go(self, answer: Measured | Failure) -> Measured | Failure:
        self._loaded.clear()
        if not self._guarded(self._session.release):
            return replace(answer, replace=True)
        return answer

    def _guarded(self, work: Callable[[], T], name: str = "") -> T:
        """Do it; when it fails and took the device along, that is what is reported.

        What was loaded then stays referenced: freeing memory on a lost device ends the process,
        which must not happen before the answer is out.
        """
        try:
            done = work()
            self._session.end()
            return done
        except Exception as err:
            lost = self._session.lost(err)
            if lost is not None:
                raise lost from err
            self._session.end()
            self._loaded.pop(name, None)
            raise

    def _current(self, name: str = "") -> _Loaded:
        if name not in self._loaded:
            raise MeasurementError("no library was loaded", value=name)
        return self._loaded[name]


class _Loaded:
    """A library in a virtual machine."""

    def __init__(self, request: LibraryRequest, session: Session) -> None:
        self.session = session
        self.first_call_sec = 0.0
        self._config = request.config
        self._samples = [Sample.load(folder) for folder in request.samples]
        self._sample = self._samples[0]
        session.bring(request.library)
        session.begin(request.config)
        self.machine = session.load(request.library)
        self._set_inputs()
        self._checked: list[NDArray[np.generic]] = []
        self._error = 0.0
        self._first: list[NDArray[np.generic]] = []
        self._timed: Timed | None = None

    def _set_inputs(self) -> None:
        self.machine.set_input("main", *self.session.upload(list(self._sample.inputs)))
        # Weights and inputs went up outside the stream that calls are launched in.
        self.session.synchronize()

    def resume(self) -> None:
        """It is going to be called again."""
        self.session.begin(self._config)

    def check_others(self) -> Checked | Failure:
        """Call it on every sample but the one that it is timed on, which is set again."""
        answer = Checked(largest_error=self._error, first_call_sec=self.first_call_sec)
        timed_on, seen = self._sample, (self._checked, self._error)
        errors = [self._error]
        for number, sample in enumerate(self._samples[1:], 2):
            self._sample, self._checked = sample, []
            self._set_inputs()
            self.session.call(self.machine)
            found = self.check(self.outputs())
            if isinstance(found, Failure):
                return replace(found, reason=f"sample {number}: {found.reason}")
            errors.append(found.largest_error)
        if len(self._samples) > 1:
            self._sample, (self._checked, self._error) = timed_on, seen
            self._set_inputs()
            self.session.call(self.machine)
        by_metric = timed_on.metric is not None
        error = sum(errors) / len(errors) if by_metric else max(errors)
        return replace(answer, largest_error=error)

    def start(self) -> None:
        """The first call, which makes primitives and packs weights."""
        self.first_call_sec = self.session.call(self.machine)

    def time(
        self, sample: Callable[[relax.VirtualMachine, MeasureConfig], tuple[float, ...]]
    ) -> Timed:
        samples = sample(self.machine, self._config)
        return Timed(samples_sec=samples, clocks=self.session.clocks())

    def measure(self) -> None:
        """Everything that the device should be idle for."""
        self.start()
        self._first = self.outputs()
        self._timed = self.time(self.session.sample)
        if self._stood_still(self._timed):
            self._timed = self.time(self.session.sample)

    def _stood_still(self, timed: Timed) -> bool:
        """Whether a single call was as slow as is timed once only, and the first call was not.

        While another process gets a GPU ready, or the machine is short of memory, one call may take
        seconds: beside fifteen compilers, two of 130 candidates of 0.05 ms took 1.4 and 1.7 s, and
        a search did without them.
        """
        slow_sec = self._config.slow_call_sec
        return max(timed.samples_sec) > slow_sec > self.first_call_sec

    def judge(self) -> Measured | Failure:
        """Whether what was measured is right, before and after it was timed.

        Raises
        ------
        MeasurementError
            When nothing was measured.
        """
        if self._timed is None:
            raise MeasurementError("nothing was measured")
        before = self.check(self._first)
        return before if isinstance(before, Failure) else self.conclude(self._timed)

    def outputs(self) -> list[NDArray[np.generic]]:
        """Copies of the outputs of the latest call."""
        self.session.synchronize()
        return [tensor.numpy() for tensor in _flatten(self.machine.get_outputs("main"))]

    def conclude(self, timed: Timed) -> Measured | Failure:
        """Check once more and put everything together: a kernel that leaves something behind is
        right only the first time."""
        after = self.check(self.outputs())
        if isinstance(after, Failure):
            return replace(after, reason=f"{after.reason}, after repeated calls")
        return Measured(
            largest_error=after.largest_error,
            first_call_sec=after.first_call_sec,
            samples_sec=timed.samples_sec,
            clocks=timed.clocks,
        )

    def check(self, actual: list[NDArray[np.generic]]) -> Checked | Failure:
        """Compare outputs with the expected ones."""
        if not _same(actual, self._checked):
            wrong, self._error = self._compare(actual)
            if wrong:
                return Failure(status=CostStatus.WRONG_RESULT, reason=wrong)
            self._checked = actual
        return Checked(largest_error=self._error, first_call_sec=self.first_call_sec)

    def _compare(self, actual: Sequence[NDArray[np.generic]]) -> tuple[str, float]:
        """What is wrong with the outputs (empty when nothing is) and their largest error."""
        sample = self._sample
        if len(actual) != len(sample.expected):
            return f"{len(actual)} outputs instead of {len(sample.expected)}", np.inf
        worst = 0.0
        outputs = zip(actual, sample.expected, sample.noise, strict=True)
        for index, (array, wanted, noise) in enumerate(outputs):
            if array.shape != wanted.shape or array.dtype != wanted.dtype:
                given = f"{array.dtype}{list(array.shape)}"
                return f"output {index} is {given}, not {wanted.dtype}{list(wanted.shape)}", np.inf
            apart = distance(array, wanted)
            if not apart.fits(noise.bound()):
                return f"output {index} is {_excess(apart, noise)}", apart.largest
            worst = max(worst, apart.largest)
        if sample.metric is not None:
            try:
                return "", sample.metric.error(actual, sample.expected)
            except PrecisionError as err:
                return str(err), np.inf
        return "", worst


def _same(actual: Sequence[NDArray[np.generic]], earlier: Sequence[NDArray[np.generic]]) -> bool:
    """Whether outputs are those that were compared before, bit by bit."""
    return len(actual) == len(earlier) > 0 and all(
        a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(actual, earlier, strict=True)
    )


def _excess(apart: Distance, noise: Noise) -> str:
    """How far off a wrong output is, beside what would be right."""
    bound = noise.bound()
    if not noise.form:
        return f"wrong in {apart.rms:.2g} of its elements"
    if apart.largest > bound.largest:
        return f"off by {apart.largest:.2g} of its largest value (at most {bound.largest:.2g})"
    return f"off by {apart.rms:.2g} in root mean square (at most {bound.rms:.2g})"


def _flatten(value: Any) -> list[tvm.runtime.Tensor]:
    if isinstance(value, tvm.runtime.Tensor):
        return [value]
    return [leaf for item in value for leaf in _flatten(item)]
