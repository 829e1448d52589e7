"""What a worker process gives back between requests: it outlives hundreds of them."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path

import tvm
import tvm_ffi

from collage.backends.toolchain.children.freed_memory import return_freed_memory

_PROCESS = Path("/proc/self")
"""What Linux tells of this process."""

_WORTH_IT = 32 << 20
"""Bytes to give back that are worth the look."""

_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r--p .* (/.*)")


def load_for_a_while(library: Path) -> tvm.runtime.Module:
    """Load a library that is unloaded with the last reference to anything of it.

    TVM's own way keeps each library until the process ends. What lies beside it goes with it,
    unless it is opened for good by whoever opens it: it may refer to the library, as C++ does, and
    would keep it. The system's libraries stay: OpenMP's threads outlive what they ran.

    Parameters
    ----------
    library : Path
        A shared library that TVM has made.

    Returns
    -------
    tvm.runtime.Module
        Nothing of it may be used once it is gone.
    """
    place = library.resolve()
    own = {str(place), *(str(path.resolve()) for path in (place.parent / "lib").glob("*"))}
    before = _mapped_files()
    module = tvm_ffi.load_module(str(place), keep_module_alive=False)
    for path in _mapped_files() - before - own:
        _keep_loaded(path)
    return module


def give_back() -> None:
    """Return to the system what nobody holds any longer.

    TVM keeps a machine's buffers for the next one, and the allocator keeps what lies between two
    things that are left.
    """
    gc.collect()  # The trace of an error may hold a machine, and that its library.
    tvm_ffi.get_global_func("vm.builtin.memory_manager.clear")()
    return_freed_memory()


def forget_pages(library: Path) -> None:
    """Let go of a library's constants in memory, which most backends have packed by then.

    Who reads them all the same gets them from the file again: the system still has it.

    Parameters
    ----------
    library : Path
        It is loaded and was called.
    """
    place = str(library.resolve())
    if library.stat().st_size < _WORTH_IT or not hasattr(mmap, "MADV_DONTNEED"):
        return
    advise = ctypes.CDLL(None, use_errno=True).madvise
    for begin, size in _unchanged_mappings(place):
        advise(ctypes.c_void_p(begin), ctypes.c_size_t(size), mmap.MADV_DONTNEED)


def _unchanged_mappings(place: str) -> Iterator[tuple[int, int]]:
    """Where a file is mapped to be read, and how much of it; not what the loader has written to."""
    found: tuple[int, int] | None = None
    for line in _told("smaps"):
        mapping = _MAPPING.fullmatch(line)
        if mapping is not None:
            begin, end = (int(mapping[number], 16) for number in (1, 2))
            found = (begin, end - begin) if mapping[3] == place else None
        elif not line[0].isupper():
            found = None  # Of another kind.
        elif found is not None and line.startswith("Anonymous:"):
            if line.split()[1] == "0":
                yield found
            found = None


def _mapped_files() -> set[str]:
    """The libraries, among others, that this process has loaded."""
    return {line[line.index("/") :] for line in _told("maps") if "/" in line}


def _told(name: str) -> list[str]:
    """Lines of what Linux tells; none elsewhere."""
    try:
        return (_PROCESS / name).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _keep_loaded(path: str) -> None:
    """Have a library stay that was loaded because another one needs it."""
    with contextlib.suppress(OSError):  # It is no library.
        ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NODELETE | os.RTLD_NOW)
