"""NVIDIA's compiler, headers and libraries: where they are, and how CUDA code is compiled.

The toolkit is the one on the PATH, or the ``nvidia-cuda-nvcc`` family of wheels. Nothing here needs
a GPU.
"""

from __future__ import annotations

import functools
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tvm

from collage.backends.contract import BuildContext, LibraryRequirement
from collage.backends.contract.errors import BackendUnavailableError, CodegenError
from collage.backends.contract.requirements import install_extra
from collage.backends.toolchain import compiling

CUDA_HEADER = compiling.TEMPLATES / "collage_cuda.h"
"""Streams, workspace and tensors for entry points in C++; see the file's first lines."""

REMEDY = install_extra("cuda")

_TENSORRT_FOLDERS = ("tensorrt_libs", "tensorrt_rtx_libs")
"""Where TensorRT's wheels have their libraries, unlike NVIDIA's other ones."""


@dataclass(frozen=True)
class Toolkit:
    """A CUDA compiler and what belongs to it.

    Attributes
    ----------
    nvcc : Path
    version : str
        Release of the compiler, for example ``13.0.88``.
    root : Path
        Folder with ``include`` and ``lib`` or ``lib64``.
    """

    nvcc: Path
    version: str
    root: Path

    @property
    def include(self) -> Path:
        """Folder of ``cuda_runtime.h``."""
        return self.root / "include"


@functools.cache
def find_toolkit() -> Toolkit:
    """The CUDA toolkit of this machine.

    Raises
    ------
    BackendUnavailableError
        When there is no ``nvcc``; the message has the line that mends it.

    Examples
    --------
    >>> try:
    ...     found = find_toolkit().nvcc.is_file()
    ... except BackendUnavailableError as err:
    ...     found = "pip install" in err.remedy
    >>> found
    True
    """
    on_path = shutil.which("nvcc")
    candidates = [Path(on_path)] if on_path else []
    candidates.append(Path("/usr/local/cuda/bin/nvcc"))
    candidates += [folder / "bin" / "nvcc" for folder in _wheel_folders()]
    for path in candidates:
        if not path.is_file():
            continue
        nvcc = path.resolve()
        text = compiling.run_tool([str(nvcc), "--version"])
        release = re.search(r"V(\d+\.\d+\.\d+)", text)
        root = _toolkit_root(nvcc)
        if release and root is not None:
            return Toolkit(nvcc, release.group(1), root)
    raise BackendUnavailableError(
        "no CUDA compiler (nvcc) was found on the PATH or in a wheel", remedy=REMEDY, value="nvcc"
    )


def _toolkit_root(nvcc: Path) -> Path | None:
    """The folder that holds the compiler's headers; wrapper scripts may lie elsewhere."""
    text = compiling.run_tool([str(nvcc), "--dryrun", "-E", "-x", "cu", "/dev/null"], both=True)
    top = re.search(r"#\$ TOP=(.*)", text)
    roots = [Path(top.group(1))] if top else []
    roots.append(nvcc.parent.parent)
    for root in roots:
        if (root / "include" / "cuda_runtime.h").is_file():
            return root.resolve()
    return None


def _site_folders() -> list[Path]:
    """Folders that packages are imported from."""
    return [Path(entry) for entry in dict.fromkeys(sys.path) if entry and Path(entry).is_dir()]


def _wheel_folders() -> list[Path]:
    """``nvidia/*`` folders of NVIDIA's wheels."""
    return [
        folder
        for site in _site_folders()
        for folder in sorted((site / "nvidia").glob("*"))
        if folder.is_dir()
    ]


def _toolkit_folders() -> list[Path]:
    try:
        return [find_toolkit().root]
    except BackendUnavailableError:
        return []


def library_folders() -> list[Path]:
    """Folders of NVIDIA's libraries, the wheels' first."""
    folders = [folder / "lib" for folder in _wheel_folders()]
    folders += [site / name for site in _site_folders() for name in _TENSORRT_FOLDERS]
    for root in _toolkit_folders():
        folders += [root / name for name in ("lib64", "lib", "targets/x86_64-linux/lib")]
    return [folder for folder in folders if folder.is_dir()]


def find_library(soname: str) -> Path | None:
    """A shared library of NVIDIA's by its name, for example ``libcublasLt.so.13``."""
    for folder in library_folders():
        if (folder / soname).is_file():
            return folder / soname
    return None


def find_header_dir(header: str) -> Path | None:
    """The folder of a header, for example ``cublasLt.h`` or ``cudnn.h``.

    Looks in the wheels, in the ``include`` folder of the environment and in the toolkit.
    """
    folders = [folder / "include" for folder in _wheel_folders()]
    folders += [site / "include" for site in _site_folders()]
    folders += [root / "include" for root in _toolkit_folders()]
    folders += [Path("/usr/include"), Path("/usr/include/x86_64-linux-gnu")]
    return next((folder for folder in folders if (folder / header).is_file()), None)


def arch_of(device: tvm.target.Target) -> str:
    """The architecture of a CUDA target, for example ``sm_90a``.

    Raises
    ------
    CodegenError
        When the target is for another kind of device.
    """
    arch = device.attrs.get("arch")
    if arch is None:
        raise CodegenError(f"a CUDA target is needed, not '{device.kind.name}'", value=str(device))
    return str(arch)


def compute_capability(arch: str) -> int:
    """An architecture's number, for example 90 of ``sm_90a``.

    Examples
    --------
    >>> compute_capability("sm_90a")
    90
    """
    return int("".join(filter(str.isdigit, arch)))


def arch_flags(arch: str) -> list[str]:
    """nvcc's flags for machine code of exactly this architecture, without PTX."""
    number = arch.removeprefix("sm_")
    return [f"-gencode=arch=compute_{number},code=sm_{number}"]


NVRTC = ("libnvrtc.so.13", "libnvrtc-builtins.so.13.0")
"""What compiles CUDA C++ as a program runs, and what that loads."""


def cudart() -> LibraryRequirement:
    """The CUDA runtime library, which TVM's CUDA runtime needs too.

    Raises
    ------
    BackendUnavailableError
        When it is not installed.
    """
    soname = "libcudart.so.13"
    path = find_library(soname)
    if path is None:
        raise BackendUnavailableError(f"'{soname}' was not found", remedy=REMEDY, value=soname)
    return LibraryRequirement(soname, find_toolkit().version, "nvidia-cuda-runtime", path)


def cached_cuda_compilation(
    source: Path,
    context: BuildContext,
    arch: str,
    flags: Sequence[str] = (),
    depends: Iterable[Path] = (),
) -> compiling.Compilation:
    """How nvcc makes one CUDA or C++ file a position-independent object, named by content.

    Parameters
    ----------
    source : Path
        A ``.cu`` or ``.cc`` file.
    context : BuildContext
        Its cache folder is where the object goes.
    arch : str
        For example ``sm_90a``.
    flags : sequence of str
        nvcc flags besides ``-O3 -std=c++17``, the architecture and the shared include folders.
        Folders named here are part of the content's name, their files are not: name those that
        may change in ``depends``.
    depends : iterable of Path
        Files that the source includes and whose content therefore counts.

    Returns
    -------
    Compilation
        Of an object in ``<cache_dir>/objects``.
    """
    toolkit = find_toolkit()
    fixed = [
        *("-O3", "-std=c++17", "--expt-relaxed-constexpr", "-DNDEBUG"),
        *("-Xcompiler", ",".join(("-fPIC", compiling.OWN_STATICS))),
    ]
    versions = [toolkit.version, compiling.compiler_version(context.cxx)]
    key = [*fixed, *flags, *versions, arch, source.suffix]
    command = (
        *(str(toolkit.nvcc), "-c", str(source)),
        *(["-x", "cu"] if source.suffix == ".cu" else []),
        *("-ccbin", context.cxx),
        *fixed,
        *arch_flags(arch),
        *compiling.ffi_include_flags(),
        f"-I{toolkit.include}",
        *flags,
    )
    included = [CUDA_HEADER, compiling.FFI_HEADER, *depends]
    return compiling.Compilation.of(source, included, key, command, context)
