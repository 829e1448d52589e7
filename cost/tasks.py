"""What worker processes do: the requests they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from collage.backends.errors import CollageError
from collage.cost.base import CostStatus
from collage.cost.build_task import build
from collage.cost.run_task import RunService

Task = Callable[[dict[str, Any]], dict[str, Any]]


def make_tasks() -> Mapping[str, Task]:
    """The requests that one worker answers, by name."""
    runs = RunService()
    return {
        "build": build,
        "run": runs.run,
        "load": runs.load,
        "time": runs.time,
        "check": runs.check,
    }


def failure(task: str, error: Exception) -> dict[str, Any]:
    """The answer that reports an exception as a typed status with a one-line reason."""
    text = str(error).strip()
    reason = _telling_line(text) or type(error).__name__
    if not isinstance(error, CollageError):
        reason = f"{type(error).__name__}: {reason}"
    if isinstance(error, MemoryError) or "bad_alloc" in text:
        status = CostStatus.OUT_OF_MEMORY
    else:
        status = CostStatus.BUILD_FAILED if task == "build" else CostStatus.RUN_FAILED
    return {"status": status.value, "reason": reason[:300]}


def _telling_line(text: str) -> str:
    """TVM's messages begin with a stack trace and end with what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("Traceback"):
        return lines[-1]
    return lines[0] if lines else ""
