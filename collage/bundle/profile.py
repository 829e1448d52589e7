"""Where the time of a call goes: every kernel and library call timed inside the running model."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage.cost.call_times import time_calls

_NATIVE = "tvm"
_EXTERNAL = re.compile(r"(?P<backend>\w+)_(?P<number>\d+)")


@dataclass(frozen=True)
class KernelTime:
    """One kernel or library call of the model, in the order of the calls.

    Attributes
    ----------
    symbol : str
        Its function; a partition of a library is called after its backend, with a number.
    backend : str
        Whose it is.
    begin_sec : float
        After the begin of the call, median.
    median_sec, spread_sec : float
        Of the calls that were timed; the spread is half the distance of the outer deciles.
    bytes : int
        Of the tensors that it is given: what it reads and writes at least once.

    Examples
    --------
    >>> KernelTime("onednn_0", "onednn", 1e-5, 2e-3, 1e-4, bytes=4_000_000).bytes_per_sec
    2000000000.0
    """

    symbol: str
    backend: str
    begin_sec: float
    median_sec: float
    spread_sec: float
    bytes: int

    @property
    def bytes_per_sec(self) -> float:
        """How fast it moves them."""
        return self.bytes / self.median_sec if self.median_sec else 0.0


@dataclass(frozen=True)
class Profile:
    """A model's call, taken apart.

    Attributes
    ----------
    kernels : tuple of KernelTime
        In the order in which they are called.
    call_sec : float
        Median of whole calls without an instrument.
    copy_bytes_per_sec : float
        What copying memory reaches here with one thread, read and written bytes together.
    repeat : int
        Calls that were timed, of either kind.

    Examples
    --------
    >>> first = KernelTime("onednn_0", "onednn", 0.0, 3e-3, 0.0, bytes=1000)
    >>> second = KernelTime("fused_add", "tvm", 3e-3, 1e-3, 0.0, bytes=1000)
    >>> profile = Profile((first, second), call_sec=5e-3, copy_bytes_per_sec=1e10, repeat=20)
    >>> profile.share(first), f"{profile.outside_sec:.3f}"
    (0.75, '0.001')
    """

    kernels: tuple[KernelTime, ...]
    call_sec: float
    copy_bytes_per_sec: float
    repeat: int

    @property
    def kernels_sec(self) -> float:
        """All of them together."""
        return math.fsum(kernel.median_sec for kernel in self.kernels)

    @property
    def outside_sec(self) -> float:
        """Of a whole call without an instrument, what no kernel takes: the virtual machine's."""
        return max(0.0, self.call_sec - self.kernels_sec)

    def share(self, kernel: KernelTime) -> float:
        """Of the time of all kernels, from 0 to 1."""
        return kernel.median_sec / self.kernels_sec if self.kernels_sec else 0.0

    def by_backend(self) -> dict[str, float]:
        """Seconds of each backend."""
        found: dict[str, float] = {}
        for kernel in self.kernels:
            found[kernel.backend] = found.get(kernel.backend, 0.0) + kernel.median_sec
        return found

    def chrome_trace(self) -> dict[str, Any]:
        """What ``chrome://tracing`` and Perfetto open.

        References
        ----------
        Google, "Trace Event Format": complete events (``ph`` X), times in microseconds.
        """
        events: list[dict[str, Any]] = []
        rows = {name: row for row, name in enumerate(self.by_backend())}
        for name, row in rows.items():
            named = {"name": name}
            events.append({"name": "thread_name", "ph": "M", "pid": 0, "tid": row, "args": named})
        for kernel in self.kernels:
            events.append(
                {
                    "name": kernel.symbol,
                    "cat": kernel.backend,
                    "ph": "X",
                    "pid": 0,
                    "tid": rows[kernel.backend],
                    "ts": kernel.begin_sec * 1e6,
                    "dur": kernel.median_sec * 1e6,
                    "args": {"bytes": kernel.bytes, "spread_us": kernel.spread_sec * 1e6},
                }
            )
        return {"traceEvents": events, "displayTimeUnit": "ms"}


def profile_calls(
    module: tvm.runtime.Module,
    device: tvm.runtime.Device,
    entry: str,
    inputs: Sequence[tvm.runtime.Tensor],
    backends: Sequence[str],
    repeat: int,
    warmup: int,
) -> tuple[KernelTime, ...]:
    """Time every function that a compiled model calls.

    Parameters
    ----------
    module : tvm.runtime.Module
        With an executable of TVM's virtual machine.
    device : tvm.runtime.Device
        Where it runs; waited for around each call.
    entry : str
        The function that is called.
    inputs : sequence of tvm.runtime.Tensor
        On the device.
    backends : sequence of str
        Who takes part. Partitions of libraries are functions with their names; all others are
        TVM's.
    repeat, warmup : int
        Calls that are timed, and calls before them.

    Returns
    -------
    tuple of KernelTime
        Times in seconds, in the order of the calls.
    """
    machine = relax.VirtualMachine(module, device)
    function = machine[entry]
    calls = time_calls(machine, lambda: function(*inputs), device, repeat, warmup)
    return tuple(
        KernelTime(
            *(call.symbol, _backend_of(call.symbol, backends), call.begin_sec),
            *(call.median_sec, call.spread_sec, call.bytes),
        )
        for call in calls
    )


def _backend_of(symbol: str, backends: Sequence[str]) -> str:
    match = _EXTERNAL.fullmatch(symbol)
    return match["backend"] if match and match["backend"] in backends else _NATIVE


def copy_rate(size: int = 1 << 27, repeat: int = 5) -> float:
    """Bytes per second, read and written together, of copying memory past the caches.

    Parameters
    ----------
    size : int
        Bytes that are copied at a time.
    repeat : int
        Copies; the fastest counts.

    Returns
    -------
    float
        The best of ``repeat`` runs.
    """
    source, target = np.ones(size, np.uint8), np.empty(size, np.uint8)
    best = float("inf")
    for _ in range(repeat):
        begin = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - begin)
    return 2 * size / best
