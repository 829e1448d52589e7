"""A runner worker's work: load a library, check it against the reference, then time it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from collage.backends.contract.errors import MeasurementError
from collage.cost.base import CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.reference import largest_error
from collage.cost.reference.precision import HALF
from collage.cost.worker.build import load_arrays
from collage.cost.worker.requirements import load_needs
from collage.cost.worker.session import Session, open_session

Answer = dict[str, Any]
_VALID = {"status": CostStatus.VALID.value}


class RunService:
    """Runs one library at a time; whole models stay loaded between their turns.

    On a device that others measure on too, a run is three requests, of which only the second needs
    the device to itself: :meth:`prepare`, :meth:`measure` and :meth:`judge`.

    Parameters
    ----------
    device_kind : str
        What to run on.
    """

    def __init__(self, device_kind: str = "cpu") -> None:
        self._device_kind = device_kind
        self._opened: Session | None = None
        self._loaded: _Loaded | None = None

    @property
    def _session(self) -> Session:
        if self._opened is None:
            self._opened = open_session(self._device_kind)
        return self._opened

    def open(self) -> None:
        """Begin to use the device, so that no candidate is charged for it.

        Raises
        ------
        MeasurementError
            When it cannot be used.
        """
        self._session.synchronize()

    def run(self, request: Answer) -> Answer:
        """Load, check, time, check again, and let go.

        Parameters
        ----------
        request : dict
            ``library`` (path), ``inputs`` and ``expected`` (folders of arrays), ``half`` (see
            :class:`collage.cost.measure.RunJob`), ``config``.

        Returns
        -------
        dict
            ``status``, ``samples_sec``, ``largest_error``, ``first_call_sec`` and ``clocks``; or
            ``status`` and ``reason`` of a wrong result; ``replace`` when this process is full.
        """

        def work() -> Answer:
            loaded = self._load(request)
            loaded.start()
            before = loaded.check(loaded.outputs())
            if "reason" in before:
                return before
            return loaded.conclude(loaded.time(loaded.session.sample))

        return self._let_go(self._guarded(work))

    def prepare(self, request: Answer) -> Answer:
        """Load and upload what :meth:`run` is asked for; nothing is called yet."""

        def work() -> Answer:
            self._load(request)
            return dict(_VALID)

        return self._guarded(work)

    def measure(self, _: Answer) -> Answer:
        """Call and time what was prepared, right or wrong."""
        loaded = self._current()

        def work() -> Answer:
            loaded.measure()
            return dict(_VALID)

        return self._guarded(work)

    def judge(self, _: Answer) -> Answer:
        """Check what was measured, and let go; answers as :meth:`run` does."""
        return self._let_go(self._guarded(self._current().judge))

    def load(self, request: Answer) -> Answer:
        """Load a library and check it; it stays."""

        def work() -> Answer:
            loaded = self._load(request)
            loaded.start()
            loaded.session.settle(loaded.machine)
            return {**loaded.check(loaded.outputs()), "first_call_sec": loaded.first_call_sec}

        return self._guarded(work)

    def time(self, _: Answer) -> Answer:
        """Time the whole model that was loaded."""
        loaded = self._current()
        return self._guarded(lambda: {**_VALID, **loaded.time(loaded.session.sample_model)})

    def check(self, _: Answer) -> Answer:
        """Check the loaded library once more."""
        loaded = self._current()
        return self._guarded(lambda: loaded.check(loaded.outputs()))

    def _load(self, request: Answer) -> _Loaded:
        self._loaded = _Loaded(request, self._session)
        return self._loaded

    def _let_go(self, answer: Answer) -> Answer:
        self._loaded = None
        if not self._session.release():
            answer["replace"] = True
        return answer

    def _guarded(self, work: Callable[[], Answer]) -> Answer:
        """Do it; when it fails and took the device along, that is what is reported.

        What was loaded then stays referenced: freeing memory on a lost device ends the process,
        which must not happen before the answer is out.
        """
        try:
            return work()
        except Exception as err:
            lost = self._session.lost()
            if lost is not None:
                raise lost from err
            self._loaded = None
            raise

    def _current(self) -> _Loaded:
        if self._loaded is None:
            raise MeasurementError("no library was loaded")
        return self._loaded


class _Loaded:
    """A library in a virtual machine."""

    def __init__(self, request: Answer, session: Session) -> None:
        self.session = session
        self.first_call_sec = 0.0
        self._config = MeasureConfig.from_dict(request["config"])
        self._expected = load_arrays(Path(request["expected"]))
        arrays = load_arrays(Path(request["inputs"]))
        self._half = request["half"] or any(
            a.dtype.name in HALF for a in (*arrays, *self._expected)
        )
        load_needs(Path(request["library"]))
        library = tvm.runtime.load_module(request["library"])
        self.machine = relax.VirtualMachine(library, session.device)
        self.machine.set_input("main", *session.upload(arrays))
        # Weights and inputs went up outside the stream that calls are launched in.
        session.synchronize()
        self._checked: list[NDArray[np.generic]] = []
        self._error = 0.0
        self._first: list[NDArray[np.generic]] = []
        self._timed: Answer = {}

    def start(self) -> None:
        """The first call, which makes primitives and packs weights."""
        self.first_call_sec = self.session.call(self.machine)

    def time(
        self, sample: Callable[[relax.VirtualMachine, MeasureConfig], tuple[float, ...]]
    ) -> Answer:
        samples = sample(self.machine, self._config)
        clocks = self.session.clocks()
        return {
            "samples_sec": samples,
            "clocks": (clocks.sm_mhz, clocks.memory_mhz) if clocks is not None else None,
        }

    def measure(self) -> None:
        """Everything that the device should be idle for."""
        self.start()
        self._first = self.outputs()
        self._timed = self.time(self.session.sample)

    def judge(self) -> Answer:
        """Whether what was measured is right, before and after it was timed."""
        before = self.check(self._first)
        return before if "reason" in before else self.conclude(self._timed)

    def outputs(self) -> list[NDArray[np.generic]]:
        """Copies of the outputs of the latest call."""
        self.session.synchronize()
        return [tensor.numpy() for tensor in _flatten(self.machine.get_outputs("main"))]

    def conclude(self, timed: Answer) -> Answer:
        """Check once more and put everything together: a kernel that leaves something behind is
        right only the first time."""
        after = self.check(self.outputs())
        if "reason" in after:
            return {**after, "reason": f"{after['reason']}, after repeated calls"}
        return {**after, **timed, "first_call_sec": self.first_call_sec}

    def check(self, actual: list[NDArray[np.generic]]) -> Answer:
        """Compare outputs with the expected ones."""
        if not _same(actual, self._checked):
            wrong, self._error = self._compare(actual)
            if wrong:
                return {"status": CostStatus.WRONG_RESULT.value, "reason": wrong}
            self._checked = actual
        return {**_VALID, "largest_error": self._error}

    def _compare(self, actual: Sequence[NDArray[np.generic]]) -> tuple[str, float]:
        """What is wrong with the outputs (empty when nothing is) and their largest error."""
        if len(actual) != len(self._expected):
            return f"{len(actual)} outputs instead of {len(self._expected)}", np.inf
        worst = 0.0
        for index, (array, wanted) in enumerate(zip(actual, self._expected, strict=True)):
            if array.shape != wanted.shape or array.dtype != wanted.dtype:
                given = f"{array.dtype}{list(array.shape)}"
                return f"output {index} is {given}, not {wanted.dtype}{list(wanted.shape)}", np.inf
            error = largest_error(array, wanted)
            if not error <= self._config.tolerance(wanted.dtype.name, half=self._half):
                return f"output {index} is off by {error:.2g} of its largest value", error
            worst = max(worst, error)
        return "", worst


def _same(actual: Sequence[NDArray[np.generic]], earlier: Sequence[NDArray[np.generic]]) -> bool:
    """Whether outputs are those that were compared before, bit by bit."""
    return len(actual) == len(earlier) > 0 and all(
        a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(actual, earlier, strict=True)
    )


def _flatten(value: Any) -> list[tvm.runtime.Tensor]:
    if isinstance(value, tvm.runtime.Tensor):
        return [value]
    return [leaf for item in value for leaf in _flatten(item)]
