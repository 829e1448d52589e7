"""What is installed where measurements are made, as far as their results depend on it."""

from __future__ import annotations

import functools
import hashlib
import platform
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import tvm
import tvm_ffi

import collage.backends
import collage.cost
from collage._version import __version__
from collage.backends.contract import NativeBackend
from collage.backends.contract.errors import BackendUnavailableError, CompileError
from collage.backends.contract.registry import BUILTIN, backend_names, get_backend
from collage.backends.toolchain.compiling import compiler_version
from collage.cost.device import DevicePolicy

_PACKAGES = (collage.backends, collage.cost)
"""What runs on a worker; a search's own part may differ."""


def versions_here(
    policy: DevicePolicy, cxx: str = "g++", backends: Iterable[str] | None = None
) -> dict[str, str]:
    """Versions of this project, of TVM, of compilers and of what the backends for a kind of device
    stand on, by name; what is not installed is not named.

    Parameters
    ----------
    policy : DevicePolicy
        Of the kind of device.
    cxx : str
        The C++ compiler driver.
    backends : iterable of str, optional
        By default all that are registered.

    Returns
    -------
    dict[str, str]
        Versions by name; sources count by their digests.

    Examples
    --------
    >>> from collage.cost.device import CPU_POLICY
    >>> sorted({"collage", "python", "tvm"} - versions_here(CPU_POLICY).keys())
    []
    """
    found = {
        "collage": f"{__version__}, sources {_sources_digest()}",
        "python": platform.python_version(),
        "tvm": f"{tvm.__version__}, ffi {tvm_ffi.__version__}",
    }
    for backend in map(get_backend, backend_names() if backends is None else backends):
        probed = backend.probe()
        takes_part = backend.device == policy.kind.name or isinstance(backend, NativeBackend)
        if probed.usable and takes_part:
            found |= {str(name): str(version) for name, version in probed.versions.items()}
            if backend.name not in BUILTIN:
                found[f"{backend.name} codegen"] = backend.source_digest()
    # A compiler that is missing is not among them, and whoever needs it sees that.
    with suppress(CompileError):
        found["compiler"] = compiler_version(cxx)
    with suppress(BackendUnavailableError):
        found |= policy.compiler_versions()
    return found


def differences(there: Mapping[str, str], here: Mapping[str, str]) -> str:
    """What is of another version there, or lacking, in one line; empty when nothing is.

    Parameters
    ----------
    there, here : mapping of str to str
        From :func:`versions_here`. What is there alone does no harm.

    Returns
    -------
    str
        Names with both versions, between semicolons; what is only there does not count.

    Examples
    --------
    >>> differences({"tvm": "0.26"}, {"tvm": "0.27", "onednn": "3.2"})
    'tvm is 0.26, here 0.27; no onednn, here 3.2'
    """
    return "; ".join(
        f"{name} is {there[name]}, here {version}"
        if name in there
        else f"no {name}, here {version}"
        for name, version in here.items()
        if there.get(name) != version
    )


@functools.cache
def _sources_digest() -> str:
    """Of what is installed, not of what it calls itself: versions stay while sources change."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        folder = Path(str(package.__file__)).resolve().parent
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(folder)}\n".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]
