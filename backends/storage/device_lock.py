"""One measurement at a time per device, among all processes of a user.

Whoever times something on a device holds its lock meanwhile: a search that measures candidates, and
a code generator that tries algorithms on a GPU while it builds. While candidates for a CPU are
built, the search itself holds the CPU's lock, so code generators for the CPU must not ask for it;
that of ``cuda`` is free during builds.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from collage.backends.contract.errors import MeasurementError, OutOfTimeError
from collage.backends.devices import DeviceKind

_PATIENCE_SEC = 3600.0


def lock_path(device: DeviceKind, index: int = 0) -> Path:
    """The lock's file. The system frees the lock when its holder ends, however that happens.

    Each GPU has its own: searches that see different GPUs (``CUDA_VISIBLE_DEVICES``) do not wait
    for each other.

    Parameters
    ----------
    device : DeviceKind
        The device's kind.
    index : int
        Of the device, as this process counts those of the kind.

    Returns
    -------
    Path
        In the folder for temporary files, by user; it need not be there yet.

    Examples
    --------
    >>> from collage.backends.devices import CPU
    >>> lock_path(CPU).name
    'collage-...-cpu.lock'
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"collage-{user}-{device.lock_name(index)}.lock"


@contextmanager
def exclusive(
    device: DeviceKind,
    waiting: Callable[[], None] | None = None,
    given_up: Callable[[], bool] = lambda: False,
    *,
    index: int = 0,
) -> Iterator[None]:
    """Hold the device; ``waiting`` is told once when another process has it.

    Parameters
    ----------
    device : DeviceKind
        The device's kind.
    waiting : callable, optional
        Nobody is told without one.
    given_up : callable, optional
        Asked again and again while waiting; after a yes, no longer waited.
    index : int
        Of the device, as this process counts those of the kind.

    Yields
    ------
    None
        Once the device is held.

    Raises
    ------
    OutOfTimeError
        When it was given up.
    MeasurementError
        When the other one does not let go within an hour.

    Examples
    --------
    >>> from collage.backends.devices import CPU
    >>> with exclusive(CPU, lambda: print("another process is measuring")):
    ...     print("nobody else times anything here now")
    nobody else times anything here now
    """
    path, poll_sec = lock_path(device, index), device.lock_poll_sec
    lock = FileLock(path)
    # Whoever wants the device stands in line holding the turnstile. A process that lets go and at
    # once comes back has to stand in line behind it: without that, it would win every time, since
    # the others only look every few milliseconds.
    turnstile = FileLock(path.with_suffix(".turnstile"))
    try:
        try:
            turnstile.acquire(timeout=0)
            lock.acquire(timeout=0)
        except Timeout:
            if waiting is not None:
                waiting()
            for one in (turnstile, lock):
                one.acquire(_PATIENCE_SEC, poll_interval=poll_sec, cancel_check=given_up)
    except Timeout as err:
        if given_up():
            raise OutOfTimeError("another process holds the device", value=lock.lock_file) from err
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
