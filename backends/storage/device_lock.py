"""One measurement at a time per device, among all processes of a user.

Whoever times something on a device holds its lock meanwhile: a search that measures candidates, and
a code generator that tries algorithms on a GPU while it builds. While candidates for a CPU are
built, the search itself holds the CPU's lock, so code generators for the CPU must not ask for it;
that of ``cuda`` is free during builds.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from collage.backends.contract.errors import MeasurementError

_PATIENCE_SEC = 3600.0
_POLL_SEC = {"cpu": 0.02, "cuda": 0.002}
"""How often those who wait look; it takes up to 0.1 ms of a core, which on a CPU may be one that
another process times on. A GPU changes hands every few dozen milliseconds."""

_DRIVER = "libcuda.so.1"


def lock_path(device_kind: str) -> Path:
    """The lock's file. The system frees the lock when its holder ends, however that happens.

    Each GPU has its own: searches that see different GPUs (``CUDA_VISIBLE_DEVICES``) do not wait
    for each other.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    name = f"{device_kind}{_bus_id() if device_kind == 'cuda' else ''}"
    return Path(tempfile.gettempdir()) / f"collage-{user}-{name}.lock"


def _bus_id() -> str:
    """Where the first GPU that this process may see sits; empty when there is none.

    Numbers would not do: each process counts the GPUs that it may see from 0. Asking makes no
    context on the device (NVIDIA, CUDA Driver API, ``cuDeviceGetPCIBusId``).
    """
    try:
        driver = ctypes.CDLL(_DRIVER)
        device, text = ctypes.c_int(), ctypes.create_string_buffer(32)
        failed = (
            driver.cuInit(0)
            or driver.cuDeviceGet(ctypes.byref(device), 0)
            or driver.cuDeviceGetPCIBusId(text, len(text), device)
        )
    except (OSError, AttributeError):
        # No driver, or the stand-in that lets TVM compile without one.
        return ""
    return "" if failed else "-" + text.value.decode().replace(":", "-")


@contextmanager
def exclusive(device_kind: str, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the device; ``waiting`` is told once when another process has it.

    Parameters
    ----------
    device_kind : str
        ``cpu`` or ``cuda``.
    waiting : callable, optional
        Nobody is told without one.

    Raises
    ------
    MeasurementError
        When the other one does not let go within an hour.
    """
    lock, poll_sec = FileLock(lock_path(device_kind)), _POLL_SEC[device_kind]
    # Whoever wants the device stands in line holding the turnstile. A process that lets go and at
    # once comes back has to stand in line behind it: without that, it would win every time, since
    # the others only look every few milliseconds.
    turnstile = FileLock(lock_path(device_kind).with_suffix(".turnstile"))
    try:
        try:
            turnstile.acquire(timeout=0)
            lock.acquire(timeout=0)
        except Timeout:
            if waiting is not None:
                waiting()
            turnstile.acquire(timeout=_PATIENCE_SEC, poll_interval=poll_sec)
            lock.acquire(timeout=_PATIENCE_SEC, poll_interval=poll_sec)
    except Timeout as err:
        raise MeasurementError(
            f"another process holds the device since an hour ('{lock.lock_file}')",
            value=lock.lock_file,
        ) from err
    finally:
        turnstile.release(force=True)
    try:
        yield
    finally:
        lock.release()
