"""A library that is loaded in a worker: called, timed, and compared with what it is to compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from msgspec.structs import replace
from numpy.typing import NDArray
from tvm import relax

from collage.backends.contract.errors import MeasurementError, PrecisionError
from collage.cost.base import CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.processes.messages import (
    Checked,
    Failure,
    LibraryRequest,
    Measured,
    Timed,
)
from collage.cost.reference import Distance, Noise, Sample, distance
from collage.cost.worker.session import Session


class LoadedLibrary:
    """A library in a virtual machine.

    Parameters
    ----------
    request : LibraryRequest
        Where the library lies, what is given to it and what is expected.
    session : Session
        The device that it runs on.
    """

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
