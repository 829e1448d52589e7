"""TVM's own CUDA support: its runtime library, with or without a driver, and its use of nvcc."""

from __future__ import annotations

import ctypes
import functools
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tvm
import tvm_ffi
from tvm import relax
from tvm_ffi.libinfo import load_lib_ctypes

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import BackendUnavailableError, CompileError
from collage.backends.toolchain import compiling
from collage.backends.toolchain.artifact_cache import make_once
from collage.backends.toolchain.cuda_driver import DRIVER
from collage.backends.toolchain.cuda_toolkit import arch_of, compute_capability, cudart
from collage.backends.toolchain.kernels.compile import compile_kernels

_CALLBACK = "tvm_callback_cuda_compile"


def _has_cuda_runtime() -> bool:
    """Whether TVM can build modules for CUDA, which needs its CUDA runtime library."""
    return tvm_ffi.get_global_func("device_api.cuda", allow_missing=True) is not None


@dataclass(frozen=True)
class Gpu:
    """What TVM says of a CUDA device.

    Attributes
    ----------
    name : str
        For example ``NVIDIA H200``.
    compute_capability : int
        For example 90.
    multiprocessors : int
    memory_bytes : int
        All of its memory.
    """

    name: str
    compute_capability: int
    multiprocessors: int
    memory_bytes: int

    @property
    def arch(self) -> str:
        """Its architecture, for example ``sm_90``."""
        return f"sm_{self.compute_capability}"


def find_gpu(index: int = 0) -> Gpu | None:
    """A GPU that this process may see, or None where TVM can use none.

    Loads TVM's CUDA runtime when there may be one.

    Examples
    --------
    >>> gpu = find_gpu()
    >>> gpu is None or gpu.arch.startswith("sm_")
    True
    """
    if not has_device(index):
        return None
    device = tvm.cuda(index)
    return Gpu(
        str(device.device_name),
        int(str(device.compute_version).replace(".", "")),
        int(device.multi_processor_count),
        int(device.total_global_memory),
    )


def has_device(index: int = 0) -> bool:
    """Whether there is a GPU that TVM can use; loads TVM's CUDA runtime when there may be one."""
    if not _has_cuda_runtime():
        try:
            load_runtime()
        except BackendUnavailableError:
            return False
    return bool(tvm.cuda(index).exist)


def device_name(arch: str, context: BuildContext | None = None) -> str | None:
    """The name of the first GPU here, or None where there is none of that architecture.

    Parameters
    ----------
    arch : str
        For example ``sm_90a``.
    context : BuildContext, optional
        May know it already.

    Returns
    -------
    str or None
        For example ``NVIDIA H200``.
    """
    known = None if context is None else context.gpu
    if known is None:
        gpu = find_gpu()
        known = None if gpu is None else (gpu.name, gpu.compute_capability)
    if known is None or known[1] != compute_capability(arch):
        return None
    return known[0]


def never_let_go(executable: relax.VMExecutable) -> None:
    """Keep the CUDA modules of an executable for as long as the process lives.

    As TVM releases one it asks CUDA for the current device, and whoever only compiles begins to use
    the GPU by that: the driver lets in one process at a time.

    Parameters
    ----------
    executable : relax.VMExecutable
        What was compiled; its other parts may go.
    """
    modules = [executable.mod]
    while modules:
        module = modules.pop()
        modules.extend(module.imports)
        if module.kind == "cuda":
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(module))


def load_runtime() -> None:
    """Load TVM's CUDA runtime on a machine with a driver.

    Raises
    ------
    BackendUnavailableError
        When the driver or CUDA's runtime library is missing.
    """
    if not _has_cuda_runtime():
        try:
            ctypes.CDLL(DRIVER, ctypes.RTLD_GLOBAL)
        except OSError as err:
            raise BackendUnavailableError(
                f"NVIDIA's driver library '{DRIVER}' was not found: this machine has no driver",
                value=DRIVER,
            ) from err
        _load_tvm_cuda()


def load_runtime_or_stub(context: BuildContext) -> None:
    """Load TVM's CUDA runtime, over a stand-in for the driver where there is none.

    Without that library TVM does not compile CUDA code: it silently embeds the bare source.
    """
    if _has_cuda_runtime():
        return
    try:
        ctypes.CDLL(DRIVER, ctypes.RTLD_GLOBAL)
    except OSError:
        ctypes.CDLL(str(_driver_stub(context)), ctypes.RTLD_GLOBAL)
    _load_tvm_cuda()


def _load_tvm_cuda() -> None:
    ctypes.CDLL(str(cudart().path), ctypes.RTLD_GLOBAL)
    folder = Path(tvm.base._LOADED_LIBS["tvm_runtime"]._name).resolve().parent
    _keep_loaded(load_lib_ctypes("tvm", "tvm_runtime_cuda", "RTLD_LOCAL", extra_lib_paths=[folder]))
    if not _has_cuda_runtime():
        raise CompileError("TVM's CUDA runtime library registered no device", value=str(folder))


def _keep_loaded(library: ctypes.CDLL) -> None:
    # TVM keeps its libraries in this table; one that is collected would take its functions along.
    tvm.base._LOADED_LIBS["tvm_runtime_cuda"] = library


def _driver_stub(context: BuildContext) -> Path:
    source = compiling.TEMPLATES / "cuda_driver_stub.c"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:20]
    library = context.cache_dir / "objects" / f"cuda-driver-stub-{digest}" / DRIVER
    command = [context.cxx, "-x", "c", "-shared", "-fPIC", f"-Wl,-soname,{DRIVER}", str(source)]
    return make_once(library, lambda path: compiling.run_tool([*command, "-o", str(path)]))


@contextmanager
def nvcc_compiles(device: tvm.target.Target, context: BuildContext) -> Iterator[None]:
    """While this is entered, TVM's CUDA code is compiled by our nvcc, once per content.

    TVM's own way reads the environment, needs nvcc on the PATH and adds ``--use_fast_math``.

    Parameters
    ----------
    device : tvm.target.Target
        Names the architecture.
    context : BuildContext
        Compiler and cache folder.

    Yields
    ------
    None
        While the device is TVM's current target.
    """
    compile_code = functools.partial(compile_kernels, context=context, arch=arch_of(device))
    tvm_ffi.register_global_func(_CALLBACK, lambda code, *_: compile_code(code), override=True)
    with device:
        yield
