"""Virtual machines over one loaded library: as many as calls run at a time, weights shared."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import relax


class Contexts:
    """Lends a virtual machine to each call; use :meth:`borrow`.

    A virtual machine holds the registers of one call at a time. On a CPU another one takes
    microseconds and shares code and weights with the first, so there are as many as there are calls
    at the same time. On a GPU each would upload the weights again, and the device runs one call
    after the other anyway: there all calls share one.

    Parameters
    ----------
    module : tvm.runtime.Module
        The library.
    device : tvm.runtime.Device
        Where it runs.

    Examples
    --------
    >>> from collage.testing import graph
    >>> mod = graph([(3,)], lambda emit, x: relax.op.abs(x))
    >>> tvm.compile(mod, "llvm").export_library("abs.so")
    >>> contexts = Contexts(tvm.runtime.load_module("abs.so"), tvm.cpu())
    >>> with contexts.borrow() as functions, contexts.borrow() as others:
    ...     len(contexts), functions["main"] is others["main"]
    (2, False)
    """

    def __init__(self, module: tvm.runtime.Module, device: tvm.runtime.Device) -> None:
        self._module = module
        self._device = device
        self._idle: deque[Functions] = deque()
        self._made = 0
        on_cpu = device.dlpack_device_type() == tvm.cpu().dlpack_device_type()
        self._turn = None if on_cpu else threading.Lock()
        # What does not load is to be found out now, not in a call.
        self._idle.append(self._new())

    def __len__(self) -> int:
        """How many virtual machines were made."""
        return self._made

    @contextmanager
    def borrow(self) -> Iterator[Functions]:
        """The functions by name, for one call at a time."""
        functions = self.take()
        try:
            yield functions
        finally:
            self.give(functions)

    def take(self) -> Functions:
        """The functions by name, to be given back after one call."""
        if self._turn is not None:
            self._turn.acquire()
            return self._idle[0]
        try:
            return self._idle.pop()
        except IndexError:
            return self._new()

    def give(self, functions: Functions) -> None:
        """Give back what was taken."""
        if self._turn is not None:
            self._turn.release()
        else:
            self._idle.append(functions)

    def _new(self) -> Functions:
        self._made += 1
        return Functions(relax.VirtualMachine(self._module, self._device))


class Functions(dict[str, Callable[..., Any]]):
    """A virtual machine's functions, each looked up once.

    Parameters
    ----------
    machine : relax.VirtualMachine
        Whose they are.
    """

    def __init__(self, machine: relax.VirtualMachine) -> None:
        super().__init__()
        self._machine = machine

    def __missing__(self, name: str) -> Callable[..., Any]:
        self[name] = self._machine[name]
        return self[name]
