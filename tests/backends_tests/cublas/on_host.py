"""Calls entry points of a compiled library with host memory that says it is a GPU's.

    python -m tests.backends_tests.cublas.on_host STAND_IN.so LIBRARY.so REQUESTS.json
    python -m tests.backends_tests.cublas.on_host STAND_IN.so TUNER.so REQUESTS.json

The stand-in (``cublas_on_host.cc``) takes cublasLt's place in this process, so it is a process of
its own. Requests are calls of entry points, each with a symbol, files of raw arguments and where
the result goes; or products to choose algorithms for. The answer, on standard output, is one line
of JSON.
"""

from __future__ import annotations

import ctypes
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from filelock import FileLock, Timeout

from collage.backends.contract.errors import CodegenError, ReplayMissError
from collage.backends.cublas.problem import Problem
from collage.backends.cublas.timer import Choice, Device, Timer
from collage.backends.cublas.tuning import SCHEMA, Tuner
from collage.backends.devices import CUDA
from collage.backends.storage import TuningStore, lock_path
from tests.backends_tests.cublas.choices import keep_choice
from tests.backends_tests.dlpack import DLTensor

_CUDA = 2
_CODES = {"float16": (2, 16), "float32": (2, 32), "bfloat16": (4, 16)}


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_KEEP_MEMORY = _Deleter(lambda _: None)


class _DLManagedTensor(ctypes.Structure):
    _fields_ = (("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


class DeviceTensor:
    """Bytes on the host, handed over as a tensor of a CUDA device.

    Parameters
    ----------
    shift : int
        Bytes by which the data misses an alignment of 256.
    """

    def __init__(
        self, shape: Sequence[int], dtype: str, data: bytes | None = None, shift: int = 0
    ) -> None:
        code, bits = _CODES[dtype]
        self.size = math.prod(shape) * bits // 8
        self._buffer = ctypes.create_string_buffer(self.size + 512)
        start = -(-ctypes.addressof(self._buffer) // 256) * 256 + shift
        self.address = start
        ctypes.memmove(start, data or b"\xff" * self.size, self.size)
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        tensor = DLTensor(start, _CUDA, 0, len(shape), code, bits, 1, self._shape, None, 0)
        self._managed = _DLManagedTensor(tensor, None, _KEEP_MEMORY)

    def __dlpack__(self, **_: Any) -> Any:
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = (
            ctypes.py_object,
            (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
        )
        return make(ctypes.addressof(self._managed), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_CUDA, 0)

    def bytes(self) -> bytes:
        """What the memory holds."""
        return ctypes.string_at(self.address, self.size)


def run(library: tvm.runtime.Module, request: Mapping[str, Any]) -> str:
    """Call one entry point; returns the error it raised, or nothing."""
    tensors = [
        DeviceTensor(item["shape"], item["dtype"], Path(item["file"]).read_bytes(), item["shift"])
        for item in request["inputs"]
    ]
    result = DeviceTensor(request["output"]["shape"], request["output"]["dtype"])
    arguments = [tvm_ffi.from_dlpack(tensor) for tensor in (*tensors, result)]
    try:
        library.get_function(request["symbol"], query_imports=True)(*arguments)
    except (RuntimeError, TypeError, ValueError) as err:
        return f"{type(err).__name__}: {err}"
    finally:
        del arguments  # They point into `tensors`, so they must go first.
    Path(request["output"]["file"]).write_bytes(result.bytes())
    return ""


def call_all(
    host: ctypes.CDLL | None, library: str, requests: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Call entry points in turn; what each raised, and what the stand-in has counted by then."""
    module = tvm.runtime.load_module(library)
    answers: list[dict[str, Any]] = []
    for request in requests:
        if host is None:
            answers.append({"error": run(module, request)})
            continue
        host.on_host_capture(int(request.get("captured", False)))
        error = run(module, request)
        host.on_host_capture(0)
        seen = (ctypes.c_int64 * 4)()
        host.on_host_counts(seen)
        counts = dict(zip(("heuristics", "handles", "allocations", "launches"), seen, strict=True))
        answers.append({"error": error, "algorithm": host.on_host_last_algorithm(), **counts})
    return answers


class MeanwhileLog(TuningStore):
    """A log to which another process adds a choice while this one waits for it."""

    choice: Choice

    @contextmanager
    def claim(
        self, keys: Iterable[Mapping[str, Any]], *, patient: bool = True
    ) -> Iterator[list[bool]]:
        (key,) = keys
        other = TuningStore("cublas", SCHEMA, self._cache.path)
        keep_choice(other, Problem(**key["problem"]), self.choice)
        with super().claim([key], patient=patient) as held:
            yield held


class Watcher:
    """Notes whether the device's lock is held when the stand-in is called, and lets calls fail.

    Parameters
    ----------
    failing : str
        A call of which the ``nth`` fails, counted from 1.
    """

    def __init__(self, host: ctypes.CDLL, failing: str, nth: int) -> None:
        self.calls: dict[str, list[bool]] = {}
        self._failing, self._nth = failing, nth
        self._function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(self._see)
        host.on_host_watch(self._function)

    def _see(self, call: bytes) -> int:
        seen = self.calls.setdefault(call.decode(), [])
        seen.append(device_is_held())
        return call.decode() == self._failing and len(seen) == self._nth


def device_is_held() -> bool:
    """Whether anybody has the lock of the GPU, this process included."""
    lock = FileLock(lock_path(CUDA))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False


def tune_all(host: ctypes.CDLL, library: str, requests: Mapping[str, Any]) -> dict[str, Any]:
    """Choose algorithms for products; what was chosen, or the error, and what was seen."""
    problems = [Problem(**fields) for fields in requests["problems"]]
    kind = MeanwhileLog if "meanwhile" in requests else TuningStore
    log = kind("cublas", SCHEMA, Path(requests["log"]), replay=bool(requests.get("replay", False)))
    if isinstance(log, MeanwhileLog):
        found = requests["meanwhile"]
        log.choice = Choice(**{**found, "device": Device(**found["device"])})
    watcher = Watcher(host, *requests.get("failing", ("", 0)))
    answer: dict[str, Any] = {}
    try:
        timer = Timer(Path(library), "stand-in")
        chosen = Tuner(log, "sm_90a", timer.version, timer).answers(problems)
        answer["choices"] = [asdict(chosen[p]) for p in problems]
    except (CodegenError, ReplayMissError) as err:
        answer["error"] = str(err)
    seen = (ctypes.c_int64 * 4)()
    host.on_host_counts(seen)
    answer |= {"heuristics": seen[0], "alive": host.on_host_alive(), "calls": watcher.calls}
    return answer | {"held_after": device_is_held()}


def main(stand_in: str, library: str, requests: str) -> None:
    """Serve a file of requests: calls of entry points, or products to choose algorithms for.

    Parameters
    ----------
    stand_in : str
        Or ``-`` for NVIDIA's own libraries, which the requests name.
    """
    given = json.loads(Path(requests).read_text())
    host = None if stand_in == "-" else ctypes.CDLL(stand_in, ctypes.RTLD_GLOBAL)
    for path in given.get("preload", ()):
        ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    if host is not None:
        host.on_host_set_version.argtypes = [ctypes.c_size_t]
        host.on_host_set_time.argtypes = [ctypes.c_int, ctypes.c_float]
        host.on_host_set_version(given.get("version", 131000))
        for algorithm, us in given.get("times_us", {}).items():
            host.on_host_set_time(int(algorithm), us)
    if host is not None and "problems" in given:
        print(json.dumps(tune_all(host, library, given)))
    else:
        print(json.dumps(call_all(host, library, given["requests"])))


if __name__ == "__main__":
    main(*sys.argv[1:])
