"""Which runtime engines run through: TensorRT's C++ library, or its Python package."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from collage.backends.contract import LibraryRequirement
from collage.backends.contract.errors import BackendUnavailableError
from collage.backends.tensorrt.library import PACKAGES, Package, find_package
from collage.backends.toolchain import cuda_toolkit

HEADER = "NvInferRuntime.h"
_VERSION_HEADER = "NvInferVersion.h"
_WHEELS = {"tensorrt": "tensorrt", "tensorrt_rtx": "tensorrt-rtx-cu13"}
_STEMS = {"tensorrt": "libnvinfer.so", "tensorrt_rtx": "libtensorrt_rtx.so"}


@dataclass(frozen=True)
class Shim:
    """What the C++ runtime is compiled and linked with.

    Attributes
    ----------
    include : Path
        Folder of ``NvInferRuntime.h``.
    library : LibraryRequirement
        What a bundle needs where it runs.
    """

    include: Path
    library: LibraryRequirement


def find_shim(package: Package) -> Shim | None:
    """Headers and library of exactly the installed TensorRT, or None.

    An engine runs on the version that built it, so headers of another version are of no use.
    """
    include = cuda_toolkit.find_header_dir(HEADER)
    if include is None or not matches(include / _VERSION_HEADER, package):
        return None
    library = _find_library(package, include)
    if library is None:
        return None
    wheel = _WHEELS[package.name]
    return Shim(include, LibraryRequirement(library.name, package.version, wheel, library))


def matches(header: Path, package: Package) -> bool:
    """Whether a version header is that of a package: same edition, major and minor version.

    Parameters
    ----------
    header : Path
        ``NvInferVersion.h``.
    package : Package
        An installed TensorRT.

    Returns
    -------
    bool
        False where the file is missing, or names another edition only.
    """
    if not header.is_file():
        return False
    text = header.read_text(encoding="utf-8", errors="replace")
    names = {"tensorrt": "ENTERPRISE", "tensorrt_rtx": "RTX"}
    edition = f"TRT_MAJOR_{names[package.name]}"
    other = [f"TRT_MAJOR_{name}" for key, name in names.items() if key != package.name]
    if edition not in text and any(name in text for name in other):
        return False
    version = package.version.split(".")[:2]
    return [_defined(text, f"NV_TENSORRT_{part}") for part in ("MAJOR", "MINOR")] == version


def _defined(text: str, name: str) -> str:
    """The number that a macro stands for, directly or through one other macro."""
    for _ in range(2):
        found = re.search(rf"^#define\s+{name}\s+(\w+)", text, re.MULTILINE)
        if found is None:
            return ""
        name = found.group(1)
        if name.isdigit():
            break
    return name


def _find_library(package: Package, include: Path) -> Path | None:
    """The shared library, beside the headers or in the package's wheel."""
    pattern = f"{_STEMS[package.name]}.{package.version.split('.')[0]}"
    folders = [include.parent / "lib", include.parent / "lib64", Path("/usr/lib/x86_64-linux-gnu")]
    folders += cuda_toolkit.library_folders()
    return next((f / pattern for f in folders if (f / pattern).is_file()), None)


def runtime_name(package: Package, shim: Shim | None) -> str:
    """How a bundle's manifest names the runtime: ``python:tensorrt_rtx:1.7.1.116``.

    Parameters
    ----------
    package : Package
        What built the engines.
    shim : Shim or None
        What runs them, if not Python.

    Returns
    -------
    str
        ``python`` or ``shim``, the package and its full version, with colons between.
    """
    return f"{'python' if shim is None else 'shim'}:{package.name}:{package.version}"


def package_for(name: str) -> Package | None:
    """The package that a manifest's entry asks for; None where a library runs the engines.

    Raises
    ------
    BackendUnavailableError
        When it is not installed here in that version.
    """
    kind, _, rest = name.partition(":")
    wanted, _, version = rest.partition(":")
    if kind == "shim":
        return None
    if kind != "python" or wanted not in PACKAGES:
        raise BackendUnavailableError(f"unknown TensorRT runtime '{name}'", value=name)
    # Only the edition for RTX can be had from where pip looks.
    remedy = f"pip install '{_WHEELS[wanted]}=={version}'" if wanted == "tensorrt_rtx" else ""
    package, reason = find_package((wanted,))
    if package is None:
        raise BackendUnavailableError(
            f"engines run through the Python package {wanted} {version}: {reason}",
            remedy=remedy,
            value=wanted,
        )
    if package.version != version:
        raise BackendUnavailableError(
            f"engines were built by {wanted} {version} and run on that version only; "
            f"{package.version} is installed",
            remedy=remedy,
            value=package.version,
        )
    return package
