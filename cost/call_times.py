"""The calls that a compiled model makes, each timed where it runs: inside the model.

The virtual machine tells an instrument before and after each function that it calls. So kernels are
timed one after the other, with the caches as the model leaves them; what the instrument itself
takes falls between them and is not counted as theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax

Clock = Callable[[], float]
"""Seconds since some moment."""

_NO_KERNELS = ("vm.builtin.", "collage_")
"""What the virtual machine does itself (memory, checks, constants), and this project's hooks."""


@dataclass(frozen=True)
class CallTime:
    """One kernel or library call of a model.

    Attributes
    ----------
    symbol : str
        Its function; a partition of a library is called after its backend, with a number.
    median_sec, spread_sec : float
        Of the model's calls that were timed; the spread is half the distance of the outer deciles.
    begin_sec : float
        After the begin of the model's call, median.
    bytes : int
        Of the tensors that it is given: what it reads and writes at least once.

    Examples
    --------
    >>> CallTime("onednn_0", 2e-3, 1e-4, begin_sec=1e-5, bytes=4_000_000).symbol
    'onednn_0'
    """

    symbol: str
    median_sec: float
    spread_sec: float = 0.0
    begin_sec: float = 0.0
    bytes: int = 0


def time_calls(
    machine: relax.VirtualMachine,
    call: Callable[[], object],
    device: tvm.runtime.Device,
    repeat: int,
    warmup: int,
    clock: Clock = time.perf_counter,
) -> tuple[CallTime, ...]:
    """Time every function that a compiled model calls.

    Parameters
    ----------
    machine : tvm.relax.VirtualMachine
        Of no other use afterwards: an instrument cannot be taken off again.
    call : callable
        Calls the model once.
    device : tvm.runtime.Device
        Where it runs; waited for around each call.
    repeat, warmup : int
        Calls that are timed, at least one, and calls before them.
    clock : callable
        Seconds.

    Returns
    -------
    tuple of CallTime
        In the order of the calls; empty for a model that does not make the same calls each time.
    """
    run = _Run()
    machine.set_instrument(_instrument(lambda: run, device, clock))
    for _ in range(warmup):
        call()
    runs = []
    for _ in range(repeat):
        run = _Run()
        begin = clock()
        call()
        run.begins = [sec - begin for sec in run.begins]
        runs.append(run)
    return _summed_up(runs)


@dataclass
class _Run:
    """What the instrument saw of one call of the model, in the order of the calls' begins."""

    symbols: list[str] = field(default_factory=list)
    begins: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    under_way: list[int] = field(default_factory=list)

    def begin(self, symbol: str, size: int, clock: Clock) -> None:
        self.under_way.append(len(self.symbols))
        self.symbols.append(symbol)
        self.sizes.append(size)
        self.seconds.append(0.0)
        self.begins.append(clock())

    def end(self, now: float) -> None:
        place = self.under_way.pop()
        elapsed = now - self.begins[place]
        self.seconds[place] += elapsed
        if self.under_way:
            # A function of the virtual machine's that called this one: what is left is its own.
            self.seconds[self.under_way[-1]] -= elapsed


def _instrument(
    run: Callable[[], _Run], device: tvm.runtime.Device, clock: Clock
) -> Callable[..., None]:
    def instrument(_: Any, symbol: str, before_run: bool, __: Any, *args: Any) -> None:
        size = sum(map(_bytes, args)) if before_run else 0
        device.sync()
        if before_run:
            run().begin(str(symbol), size, clock)
        else:
            run().end(clock())

    return instrument


def _bytes(value: Any) -> int:
    if not isinstance(value, tvm.runtime.Tensor):
        return 0
    bits = int(tvm.DataType(str(value.dtype)).bits)
    return int(np.prod(value.shape, dtype=np.int64)) * bits // 8


def _summed_up(runs: Sequence[_Run]) -> tuple[CallTime, ...]:
    first = runs[0]
    if any(run.symbols != first.symbols for run in runs):
        return ()
    seconds = np.array([run.seconds for run in runs])
    begins = np.median([run.begins for run in runs], axis=0)
    found = []
    for n, symbol in enumerate(first.symbols):
        if not symbol.startswith(_NO_KERNELS):
            low, median, high = (float(q) for q in np.percentile(seconds[:, n], (10, 50, 90)))
            spread_sec, begin_sec = (high - low) / 2, float(begins[n])
            found.append(CallTime(symbol, median, spread_sec, begin_sec, first.sizes[n]))
    return tuple(found)
