"""Runs engines through TensorRT's Python package.

Used where TensorRT's C++ headers are missing. Generated code reaches it as a global function, given
everything as plain numbers, so nothing but the package is needed here.
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass
from typing import Any

import tvm_ffi

from collage.backends.tensorrt.library import Package, logged_reason, make_logger

FUNCTION = "collage.tensorrt.run"
"""Global function: (digest, address and bytes of the engine, device, stream, addresses...)."""


@dataclass(frozen=True)
class _Loaded:
    """An engine on a device, and the names of its tensors: inputs, then outputs."""

    engine: Any
    context: Any
    names: tuple[str, ...]


class PythonRuntime:
    """Engines of one package, each deserialized at its first call.

    Its device memory belongs to the context: one context per engine and device, made in the first
    call, so that later calls allocate nothing and can be captured.
    """

    def __init__(self, package: Package) -> None:
        self._logger = make_logger(package)
        self._runtime = package.module.Runtime(self._logger)
        self._package = package
        self._loaded: dict[tuple[str, int], _Loaded] = {}
        self._lock = threading.Lock()

    def run(
        self, digest: str, address: int, size: int, device: int, stream: int, *addresses: int
    ) -> None:
        """Run an engine on a stream.

        Parameters
        ----------
        digest : str
            Names the engine; equal engines are loaded once.
        address, size : int
            Where its plan lies, and how many bytes it has.
        device : int
            CUDA device, which must be the current one.
        stream : int
            Handle of a CUDA stream.
        *addresses : int
            Device addresses of the inputs, then of the outputs.

        Raises
        ------
        RuntimeError
            With TensorRT's logged reason.
        """
        with self._lock:
            key = (str(digest), device)
            if key not in self._loaded:
                plan = (ctypes.c_char * size).from_address(address)
                self._loaded[key] = self._load(memoryview(plan), len(addresses))
            loaded = self._loaded[key]
            for name, place in zip(loaded.names, addresses, strict=True):
                loaded.context.set_tensor_address(name, place)
            if not loaded.context.execute_async_v3(stream):
                raise RuntimeError(f"TensorRT does not run an engine: {self._reason()}")

    def _load(self, plan: memoryview, count: int) -> _Loaded:
        engine = self._runtime.deserialize_cuda_engine(plan)
        if engine is None:
            raise RuntimeError(f"TensorRT does not load an engine: {self._reason()}")
        context = engine.create_execution_context()
        if context is None:
            raise RuntimeError(f"TensorRT makes no execution context: {self._reason()}")
        given = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        names = sorted(given, key=lambda name: (name.startswith("output"), _number(name)))
        if len(names) != count:
            raise RuntimeError(f"an engine has {len(names)} tensors, {count} were given")
        return _Loaded(engine, context, tuple(names))

    def _reason(self) -> str:
        return logged_reason(self._logger)


def _number(name: str) -> int:
    return int(name.removeprefix("input").removeprefix("output"))


def install(package: Package) -> None:
    """Register :data:`FUNCTION`; once it is, engines of this package can run.

    The runtime itself is made at the first call: it needs a driver.
    """
    made: list[PythonRuntime] = []
    lock = threading.Lock()

    def run(*args: Any) -> None:
        with lock:
            if not made:
                made.append(PythonRuntime(package))
        made[0].run(*args)

    tvm_ffi.register_global_func(FUNCTION, run, override=True)
