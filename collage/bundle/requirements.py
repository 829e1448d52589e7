"""What a bundle needs from the machine it is loaded on, checked before anything of it runs."""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path

from collage.backends.contract.errors import BackendUnavailableError, BundleError
from collage.backends.devices import device_named
from collage.backends.devices.cpu_flags import cpu_flags_here
from collage.backends.toolchain import openmp_pool
from collage.backends.toolchain.load_requirements import load_libraries, load_runtimes
from collage.bundle.folder import RUNTIME
from collage.bundle.integrity import require_whole
from collage.bundle.manifest import Manifest


def load_requirements(folder: Path, manifest: Manifest, *, verify: bool = True) -> None:
    """Check everything that a bundle needs, and load the libraries among it.

    Parameters
    ----------
    folder : Path
        The bundle's.
    manifest : Manifest
        What it needs.
    verify : bool
        Whether files are hashed, besides being held against their sizes.

    Raises
    ------
    BundleError
        Names what is missing: another architecture, instruction set extensions, files, or parts of
        them.
    """
    if manifest.architecture != platform.machine():
        raise BundleError(
            f"bundle '{folder}' was built for {manifest.architecture}, this machine is "
            f"{platform.machine()}: optimize the model on such a machine",
            value=manifest.architecture,
        )
    present = cpu_flags_here()
    missing = [flag for flag in manifest.cpu_flags if flag not in present]
    if missing and present:
        raise BundleError(
            f"bundle '{folder}' needs the instruction sets {', '.join(missing)}, which this CPU "
            "lacks: optimize the model here, or for an older CPU, for example with "
            "-t llvm:mcpu=x86-64-v3",
            value=missing,
        )
    _require_file(folder, manifest.library)
    require_whole(folder, manifest.files, hashed=verify)
    try:
        load_libraries(manifest.required_libraries, folder / RUNTIME)
    except BackendUnavailableError as err:
        raise BundleError(f"bundle '{folder}' needs {err}", value=err.value) from err
    try:
        load_runtimes(manifest.runtimes)
    except BackendUnavailableError as err:
        raise BundleError(f"bundle '{folder}' cannot run: {err}", value=err.value) from err
    if reason := device_named(manifest.device).unfit(manifest.arch):
        raise BundleError(f"bundle '{folder}' {reason}", value=manifest.arch)
    for shipped in manifest.shared_libraries:
        path = _require_file(folder, shipped.file)
        # The others call the pool of threads without being linked with it.
        mode = ctypes.RTLD_GLOBAL if path.name == openmp_pool.SONAME else ctypes.RTLD_LOCAL
        try:
            ctypes.CDLL(str(path), mode)
        except OSError as err:
            raise BundleError(f"'{path}' cannot be loaded: {err}", value=shipped.file) from err


def _require_file(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise BundleError(f"bundle '{folder}' lacks {name}: copy it whole", value=name)
    return path
