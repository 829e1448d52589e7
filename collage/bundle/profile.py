"""Where the time of a call goes: every kernel and library call timed inside the running model.

The virtual machine tells an instrument before and after each function that it calls. So kernels are
timed where they run, one after the other, with the caches as the model leaves them; what the
instrument itself takes falls between them and is not counted as theirs.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax

_NO_KERNELS = ("vm.builtin.", "collage_")
"""What the virtual machine does itself (memory, checks, constants), and this project's hooks."""

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


@dataclass
class _Run:
    """What the instrument saw of one call of the model, in the order of the calls' begins."""

    symbols: list[str] = field(default_factory=list)
    begins: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    under_way: list[int] = field(default_factory=list)

    def begin(self, symbol: str, size: int) -> None:
        self.under_way.append(len(self.symbols))
        self.symbols.append(symbol)
        self.sizes.append(size)
        self.seconds.append(0.0)
        self.begins.append(time.perf_counter())

    def end(self, now: float) -> None:
        place = self.under_way.pop()
        elapsed = now - self.begins[place]
        self.seconds[place] += elapsed
        if self.under_way:
            # A function of the virtual machine's that called this one: what is left is its own.
            self.seconds[self.under_way[-1]] -= elapsed


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
    # An instrument cannot be taken off again, so it gets a machine of its own.
    machine = relax.VirtualMachine(module, device)
    run = _Run()
    machine.set_instrument(_instrument(lambda: run, device))
    function = machine[entry]
    for _ in range(warmup):
        function(*inputs)
    runs = []
    for _ in range(repeat):
        run = _Run()
        begin = time.perf_counter()
        function(*inputs)
        run.begins = [sec - begin for sec in run.begins]
        runs.append(run)
    return _summed_up(runs, frozenset(backends))


def _instrument(run: Callable[[], _Run], device: tvm.runtime.Device) -> Callable[..., None]:
    def instrument(_: Any, symbol: str, before_run: bool, __: Any, *args: Any) -> None:
        size = sum(map(_bytes, args)) if before_run else 0
        device.sync()
        if before_run:
            run().begin(str(symbol), size)
        else:
            run().end(time.perf_counter())

    return instrument


def _bytes(value: Any) -> int:
    if not isinstance(value, tvm.runtime.Tensor):
        return 0
    bits = int(tvm.DataType(str(value.dtype)).bits)
    return int(np.prod(value.shape, dtype=np.int64)) * bits // 8


def _summed_up(runs: Sequence[_Run], backends: frozenset[str]) -> tuple[KernelTime, ...]:
    seconds = np.array([run.seconds for run in runs])
    begins = np.median([run.begins for run in runs], axis=0)
    found = []
    for n, symbol in enumerate(runs[0].symbols):
        if not symbol.startswith(_NO_KERNELS):
            low, median, high = (float(q) for q in np.percentile(seconds[:, n], (10, 50, 90)))
            match = _EXTERNAL.fullmatch(symbol)
            backend = match["backend"] if match and match["backend"] in backends else _NATIVE
            size, begin = runs[0].sizes[n], float(begins[n])
            found.append(KernelTime(symbol, backend, begin, median, (high - low) / 2, size))
    return tuple(found)


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
