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

from collage.cost.base import CostStatus
from collage.cost.build_task import load_arrays
from collage.cost.measure_config import MeasureConfig
from collage.cost.reference import largest_error
from collage.cost.timing import take_samples


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Check and time a library's ``main``.

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
    config = MeasureConfig(**request["config"])
    expected = load_arrays(Path(request["expected"]))
    device = tvm.cpu()
    machine = relax.VirtualMachine(tvm.runtime.load_module(request["library"]), device)
    inputs = [tvm.runtime.tensor(array) for array in load_arrays(Path(request["inputs"]))]
    machine.set_input("main", *inputs)
    begin = time.perf_counter()
    machine.invoke_stateful("main")
    first_call_sec = time.perf_counter() - begin
    wrong, error = _compare(machine, expected, config)
    if wrong:
        return {"status": CostStatus.WRONG_RESULT.value, "reason": wrong}
    samples = take_samples(_timer(machine, device), config)
    # Once more: a kernel that leaves something behind is right only the first time.
    wrong, error_after = _compare(machine, expected, config)
    if wrong:
        reason = f"{wrong}, after repeated calls"
        return {"status": CostStatus.WRONG_RESULT.value, "reason": reason}
    return {
        "status": CostStatus.VALID.value,
        "samples_sec": samples,
        "largest_error": max(error, error_after),
        "first_call_sec": first_call_sec,
    }


def _timer(machine: relax.VirtualMachine, device: tvm.runtime.Device) -> Any:
    def time_calls(number: int) -> float:
        if number == 1:
            # TVM's evaluator makes one call more than it times, too dear for a slow candidate.
            begin = time.perf_counter()
            machine.invoke_stateful("main")
            return time.perf_counter() - begin
        evaluator = machine.time_evaluator("invoke_stateful", device, number=number, repeat=1)
        return float(evaluator("main").results[0]) * number

    return time_calls


def _compare(
    machine: relax.VirtualMachine, expected: Sequence[NDArray[np.generic]], config: MeasureConfig
) -> tuple[str, float]:
    """What is wrong with the outputs (empty when nothing is) and their largest error."""
    actual = _flatten(machine.get_outputs("main"))
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
