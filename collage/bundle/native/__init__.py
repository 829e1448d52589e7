"""Bundles without Python: headers for C and C++, and where TVM's runtime is that they need.

``include/collage/bundle.hpp`` is the C++ one, ``bundle.h`` the one for C; ``examples/cpp`` has a
program for each.
"""

from __future__ import annotations

from pathlib import Path

import tvm
from tvm_ffi import libinfo

from collage.backends.contract.errors import BundleError

__all__ = [
    "C_SOURCE",
    "HEADERS",
    "compile_flags",
    "include_dirs",
    "link_flags",
    "runtime_libraries",
]

HEADERS = Path(__file__).parent / "include"

C_SOURCE = Path(__file__).parent / "src" / "bundle_c.cpp"
"""What ``bundle.h`` declares, to be compiled as C++ once and linked to a program in C."""


def include_dirs() -> tuple[Path, ...]:
    """The folders of this project's headers and of those of TVM's foreign function interface.

    Examples
    --------
    >>> (include_dirs()[0] / "collage" / "bundle.hpp").is_file()
    True
    """
    found = (libinfo.find_include_path(), libinfo.find_dlpack_include_path())
    return tuple(dict.fromkeys([HEADERS, *map(Path, found)]))


_EXTRA = "libtvm_runtime_extra.so"
"""TVM's sorting and the like; the headers load it where it is found, for some models need it."""

_RUNTIMES = {"cuda": ("libtvm_runtime_cuda.so",)}
"""TVM's parts for devices that are no processor."""


def runtime_libraries(device: str = "cpu") -> tuple[Path, ...]:
    """TVM's runtime, all that a program needs to run bundles.

    Parameters
    ----------
    device : str
        The kind of device: for ``cuda`` TVM's part for GPUs too.

    Raises
    ------
    BundleError
        When TVM is installed without it.

    Examples
    --------
    >>> [path.name for path in runtime_libraries()]
    ['libtvm_ffi.so', 'libtvm_runtime.so', 'libtvm_runtime_extra.so']
    """
    folder = Path(tvm.__file__).parent / "lib"
    names = ["libtvm_runtime.so", _EXTRA, *_RUNTIMES.get(device, ())]
    found = (Path(libinfo.find_libtvm_ffi()), *(folder / name for name in names))
    for path in found:
        if not path.is_file():
            raise BundleError(f"TVM's runtime is not where it should be: {path}", value=str(path))
    return found


def compile_flags() -> list[str]:
    """For a C++ compiler.

    Examples
    --------
    >>> compile_flags()[0]
    '-std=c++17'
    """
    return ["-std=c++17", *(f"-isystem{path}" for path in include_dirs())]


def link_flags() -> list[str]:
    """For a linker; the program finds TVM's runtime where it is now, or in ``LD_LIBRARY_PATH``.

    Examples
    --------
    >>> link_flags()[0]
    '-Wl,--no-as-needed'
    """
    libraries = runtime_libraries()
    folders = dict.fromkeys(str(path.parent) for path in libraries)
    return [
        "-Wl,--no-as-needed",
        *(str(path) for path in libraries if path.name != _EXTRA),
        *(f"-Wl,-rpath,{folder}" for folder in folders),
        "-ldl",
        "-pthread",
    ]
