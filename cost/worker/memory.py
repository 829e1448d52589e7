"""What a worker process gives back between requests: it outlives hundreds of them."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from pathlib import Path

import tvm
import tvm_ffi

from collage.backends.toolchain.children.freed_memory import return_freed_memory
from collage.backends.toolchain.children.mapped_pages import told


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


def _mapped_files() -> set[str]:
    """The libraries, among others, that this process has loaded."""
    return {line[line.index("/") :] for line in told("maps") if "/" in line}


def _keep_loaded(path: str) -> None:
    """Have a library stay that was loaded because another one needs it."""
    with contextlib.suppress(OSError):  # It is no library.
        ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NODELETE | os.RTLD_NOW)
