"""A runner worker's work: load a library, check it against the reference, then time it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from collage.backends.errors import MeasurementError
from collage.cost.base import CostStatus
from collage.cost.build_task import load_arrays
from collage.cost.measure_config import MeasureConfig
from collage.cost.reference import largest_error
from collage.cost.timing import take_samples

Answer = dict[str, Any]
_VALID = {"status": CostStatus.VALID.value}


class RunService:
    """Runs one library at a time; whole models stay loaded between their turns."""

    def __init__(self) -> None:
        self._loaded: _Loaded | None = None

    def run(self, request: Answer) -> Answer:
        """Load, check, time, check again, and let go.

        Parameters
        ----------
        request : dict
            ``library`` (path), ``inputs`` and ``expected`` (folders of arrays), ``config``.

        Returns
        -------
        dict
            ``status``, ``samples_sec``, ``largest_error`` and ``first_call_sec``; or ``status`` and
            ``reason`` of a wrong result.
        """
        loaded = _Loaded(request)
        before = loaded.check()
        if "reason" in before:
            return before
        samples = loaded.time()
        after = loaded.check()
        if "reason" in after:
            return {**after, "reason": f"{after['reason']}, after repeated calls"}
        return {**after, "samples_sec": samples, "first_call_sec": loaded.first_call_sec}

    def load(self, request: Answer) -> Answer:
        """Load a library and check it; it stays."""
        self._loaded = _Loaded(request)
        return {**self._loaded.check(), "first_call_sec": self._loaded.first_call_sec}

    def time(self, _: Answer) -> Answer:
        """Time the library that was loaded."""
        return {**_VALID, "samples_sec": self._current().time()}

    def check(self, _: Answer) -> Answer:
        """Check the loaded library once more."""
        return self._current().check()

    def _current(self) -> _Loaded:
        if self._loaded is None:
            raise MeasurementError("no library was loaded")
        return self._loaded


class _Loaded:
    """A library in a virtual machine, called once."""

    def __init__(self, request: Answer) -> None:
        self._config = MeasureConfig(**request["config"])
        self._expected = load_arrays(Path(request["expected"]))
        self._device = tvm.cpu()
        library = tvm.runtime.load_module(request["library"])
        self._machine = relax.VirtualMachine(library, self._device)
        inputs = [tvm.runtime.tensor(array) for array in load_arrays(Path(request["inputs"]))]
        self._machine.set_input("main", *inputs)
        self.first_call_sec = self._time_calls(1)

    def time(self) -> tuple[float, ...]:
        return take_samples(self._time_calls, self._config)

    def check(self) -> Answer:
        """Compare the outputs of the latest call. Before and after timing: a kernel that leaves
        something behind is right only the first time."""
        wrong, error = _compare(
            _flatten(self._machine.get_outputs("main")), self._expected, self._config
        )
        if wrong:
            return {"status": CostStatus.WRONG_RESULT.value, "reason": wrong}
        return {**_VALID, "largest_error": error}

    def _time_calls(self, number: int) -> float:
        if number == 1:
            # TVM's evaluator makes one call more than it times, too dear for a slow candidate.
            begin = time.perf_counter()
            self._machine.invoke_stateful("main")
            return time.perf_counter() - begin
        evaluator = self._machine.time_evaluator("invoke_stateful", self._device, number=number)
        return float(evaluator("main").results[0]) * number


def _compare(
    actual: Sequence[tvm.runtime.Tensor],
    expected: Sequence[NDArray[np.generic]],
    config: MeasureConfig,
) -> tuple[str, float]:
    """What is wrong with the outputs (empty when nothing is) and their largest error."""
    if len(actual) != len(expected):
        return f"{len(actual)} outputs instead of {len(expected)}", np.inf
    worst = 0.0
    for index, (got, wanted) in enumerate(zip(actual, expected, strict=True)):
        array = got.numpy()
        if array.shape != wanted.shape or array.dtype != wanted.dtype:
            given = f"{array.dtype}{list(array.shape)}"
            return f"output {index} is {given}, not {wanted.dtype}{list(wanted.shape)}", np.inf
        error = largest_error(array, wanted)
        if not error <= config.tolerance(wanted.dtype.name):
            return f"output {index} is off by {error:.2g} of its largest value", error
        worst = max(worst, error)
    return "", worst


def _flatten(value: Any) -> list[tvm.runtime.Tensor]:
    if isinstance(value, tvm.runtime.Tensor):
        return [value]
    return [leaf for item in value for leaf in _flatten(item)]
