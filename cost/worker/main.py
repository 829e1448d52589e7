"""The program of a worker process: reads requests from its standard input, answers on its output.

Started by :class:`collage.cost.processes.worker_process.WorkerProcess`. It imports nothing heavy
before it has made sure to die with its parent.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_PR_SET_PDEATHSIG = 1


def main(settings: dict[str, Any]) -> None:
    """Serve requests until the input ends.

    Parameters
    ----------
    settings : dict
        ``parent`` (its process id), ``plugins``, ``data_limit_bytes`` (or None), ``device`` (its
        kind), ``open_device`` (whether to begin to use it now), ``blas_threads`` (or None).
    """
    _die_with_parent(settings["parent"])
    answers = _claim_standard_output()
    if settings["blas_threads"] is not None:
        # Read when numpy is imported, which is below.
        os.environ["OPENBLAS_NUM_THREADS"] = str(settings["blas_threads"])
    with _without_torch():
        from collage.backends.contract.errors import CollageError
        from collage.cost.processes.plugins import load_plugins
        from collage.cost.worker.dispatch import Tasks, failure

    tasks = Tasks(settings["device"])
    try:
        load_plugins(settings["plugins"])
        if settings["open_device"]:
            tasks.open_device()
    except CollageError as err:
        _answer(answers, {"ready": False, "reason": str(err)})
        return
    except (ImportError, AttributeError, TypeError, ValueError) as err:
        _answer(answers, {"ready": False, "reason": f"{type(err).__name__}: {err}"})
        return
    if settings["data_limit_bytes"] is not None:
        _limit_memory(settings["data_limit_bytes"])
    _answer(answers, {"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = tasks(request)
        except Exception as err:  # noqa: BLE001 (every failure of a candidate becomes a typed reason)
            # Answered while the exception still holds what it passed through: freeing device
            # memory after a fault would end the process first.
            _answer(answers, failure(request["task"], err))
            continue
        _answer(answers, answer)
    if settings["device"] != "cpu":
        # Contexts and libraries of a GPU do not always survive being taken down in some order.
        os._exit(0)


def _die_with_parent(parent: int) -> None:
    """Linux kills this process when the thread that started it ends; elsewhere the end of the
    input must do."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # The parent died before that.


@contextmanager
def _without_torch() -> Iterator[None]:
    """TVM imports PyTorch wherever it is installed: seconds, and the GPU libraries it brings along,
    in every worker and for nothing."""
    if "torch" in sys.modules:
        yield
        return
    # This is how the import system is told that there is none.
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["torch"]


def _claim_standard_output() -> int:
    """Keep the answer pipe to ourselves: what libraries print goes to standard error."""
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers


def _limit_memory(data_limit_bytes: int) -> None:
    """Stop allocations that outrun the parent's watch; counted from what is held now."""
    with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123
        data_pages = int(statm.read().split()[5])
    limit = data_pages * resource.getpagesize() + data_limit_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _answer(answers: int, value: dict[str, Any]) -> None:
    data = json.dumps(value).encode() + b"\n"
    while data:
        data = data[os.write(answers, data) :]
