"""What a bundle needs from the machine it is loaded on, checked before anything of it runs."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collage.backends.contract import NeedsRuntime
from collage.backends.contract.errors import BackendUnavailableError, BundleError
from collage.backends.contract.registry import get_backend
from collage.backends.devices import CPU, device_named
from collage.backends.toolchain.cuda_toolkit import find_library
from collage.bundle.cpu_flags import cpu_flags


def check_needs(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Check everything a bundle needs, before anything of it runs.

    Raises
    ------
    BundleError
        Names what is missing: another architecture, instruction set extensions, files.
    """
    if manifest["architecture"] != platform.machine():
        raise BundleError(
            f"bundle '{folder}' was built for {manifest['architecture']}, this machine is "
            f"{platform.machine()}: optimize the model here",
            value=manifest["architecture"],
        )
    present = cpu_flags()
    missing = [flag for flag in manifest["cpu_flags"] if flag not in present]
    if missing and present:
        raise BundleError(
            f"bundle '{folder}' needs the instruction sets {', '.join(missing)}, which this CPU "
            "lacks: optimize the model here, or with a target that names an older CPU",
            value=missing,
        )
    if not (folder / manifest["library"]).is_file():
        raise BundleError(
            f"bundle '{folder}' lacks {manifest['library']}: copy it whole",
            value=manifest["library"],
        )
    _check_device(folder, manifest)
    for entry in manifest["shared_libraries"]:
        path = folder / entry["file"]
        if not path.is_file():
            raise BundleError(
                f"bundle '{folder}' lacks {entry['file']}: copy it whole", value=entry["file"]
            )
        try:
            ctypes.CDLL(str(path))
        except OSError as err:
            raise BundleError(
                f"'{path}' cannot be loaded: {err}; install what it names", value=entry["file"]
            ) from err


def _check_device(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Load the libraries that the machine must have, what else runs partitions, and the driver."""
    for need in manifest.get("required_libraries", ()):
        _load_library(folder, need)
    for name, runtime in manifest.get("runtimes", {}).items():
        backend = get_backend(name)
        if not isinstance(backend, NeedsRuntime):
            raise BundleError(f"'{name}' in bundle '{folder}' needs no runtime", value=name)
        try:
            backend.load_runtime(runtime)
        except BackendUnavailableError as err:
            raise BundleError(f"bundle '{folder}' cannot run: {err}", value=runtime) from err
    arch = manifest.get("arch", "")
    if reason := device_named(manifest.get("device", CPU.name)).unfit(arch):
        raise BundleError(f"bundle '{folder}' {reason}", value=arch)


def _load_library(folder: Path, need: Mapping[str, str]) -> None:
    """Load a library of NVIDIA's, so that the bundle's own finds it by its name."""
    path = find_library(need["soname"])
    try:
        ctypes.CDLL(str(path or need["soname"]), ctypes.RTLD_GLOBAL)
    except OSError as err:
        # NVIDIA counts major versions up with a library's name: the newest package may not fit.
        major = need["version"].partition(".")[0]
        raise BundleError(
            f"bundle '{folder}' needs {need['soname']} (it was linked with version "
            f"{need['version']}): {err}; pip install '{need['package']}=={major}.*'",
            value=need["soname"],
        ) from err
