"""What worker processes do: the requests they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from collage.backends.contract.errors import CollageError
from collage.cost.base import CostStatus
from collage.cost.measure.model_builder import compile_model
from collage.cost.worker.build import build, tune
from collage.cost.worker.run import RunService
from collage.cost.worker.session import DeviceLostError

Task = Callable[[dict[str, Any]], dict[str, Any]]

_BUILDING = ("build", "tune", "model")
_OUT_OF_MEMORY = ("bad_alloc", "out of memory", "OUT_OF_MEMORY", "MemoryAllocation")
"""How C++, the CUDA runtime and the driver say it."""


class Tasks:
    """The requests that one worker answers.

    Parameters
    ----------
    device_kind : str
        What libraries are run on.
    """

    def __init__(self, device_kind: str = "cpu") -> None:
        self._runs = RunService(device_kind)
        self._by_name: Mapping[str, Task] = {
            "build": build,
            "tune": tune,
            "model": compile_model,
            "run": self._runs.run,
            "prepare": self._runs.prepare,
            "measure": self._runs.measure,
            "judge": self._runs.judge,
            "load": self._runs.load,
            "time": self._runs.time,
            "check": self._runs.check,
        }

    def open_device(self) -> None:
        """See :meth:`RunService.open`."""
        self._runs.open()

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._by_name[request["task"]](request)


def failure(task: str, error: Exception) -> dict[str, Any]:
    """The answer that reports an exception as a typed status with a one-line reason.

    ``replace`` says that the process is of no further use.
    """
    text = str(error).strip()
    reason = _telling_line(text) or type(error).__name__
    if not isinstance(error, CollageError):
        reason = f"{type(error).__name__}: {reason}"
    if isinstance(error, DeviceLostError) and error.crashed:
        status = CostStatus.CRASHED
    elif isinstance(error, MemoryError) or any(words in text for words in _OUT_OF_MEMORY):
        status = CostStatus.OUT_OF_MEMORY
    else:
        status = CostStatus.BUILD_FAILED if task in _BUILDING else CostStatus.RUN_FAILED
    answer: dict[str, Any] = {"status": status.value, "reason": reason[:300]}
    if isinstance(error, DeviceLostError):
        answer["replace"] = True
    return answer


def _telling_line(text: str) -> str:
    """TVM's messages begin with a stack trace and end with what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("Traceback"):
        return lines[-1]
    return lines[0] if lines else ""
