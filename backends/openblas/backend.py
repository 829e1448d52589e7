"""OpenBLAS on a CPU: matrix products with their bias and activation, one operator at a time.

The library comes from the ``scipy-openblas32`` wheel, whose symbols start with ``scipy_``.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import tvm
from tvm import relax

from collage.backends.contract.abilities import BundlesLibraries, Precompiles
from collage.backends.contract.base import (
    Availability,
    BackendTarget,
    BuildContext,
    ExternalBackend,
    Granularity,
    PatternTriple,
)
from collage.backends.contract.errors import BackendUnavailableError
from collage.backends.openblas.codegen import compile_functions, runtime_compilations
from collage.backends.openblas.options import OpenBLASOptions
from collage.backends.openblas.patterns import pattern_table
from collage.backends.toolchain.native import Compilation

PACKAGE = "scipy-openblas32"
REMEDY = 'pip install "scipy-openblas32>=0.3.27,<0.4"'


class OpenBLASBackend(ExternalBackend, BundlesLibraries, Precompiles):
    """Matrix products through OpenBLAS's ``cblas_sgemm`` and ``cblas_sgemv``."""

    name = "openblas"
    device = "cpu"
    granularity = Granularity.OPERATOR
    options_type = OpenBLASOptions

    def probe(self) -> Availability:
        folder = package_folder()
        if folder is None:
            return Availability(False, reason=f"{PACKAGE} is not installed", remedy=REMEDY)
        missing = [p.name for p in (library_path(folder), header_path(folder)) if not p.is_file()]
        if missing:
            reason = f"{PACKAGE} at '{folder}' lacks {', '.join(missing)}"
            return Availability(False, reason=reason, remedy=f"{REMEDY} --force-reinstall")
        return Availability(True, versions={"openblas": metadata.version(PACKAGE)})

    def patterns(self, target: BackendTarget) -> Sequence[PatternTriple]:
        return pattern_table(target.options)

    def codegen(
        self,
        functions: Sequence[relax.Function],
        target: BackendTarget,
        context: BuildContext,
    ) -> list[tvm.runtime.Module]:
        include = header_path(self._folder()).parent
        return [compile_functions(functions, target.options, include, context)]

    def compilations(self, target: BackendTarget, context: BuildContext) -> Sequence[Compilation]:
        return runtime_compilations(header_path(self._folder()).parent, context)

    def shared_libraries(self, target: BackendTarget) -> Sequence[Path]:
        return (library_path(self._folder()),)

    def _folder(self) -> Path:
        found = self.probe()
        folder = package_folder()
        if not found.usable or folder is None:
            raise BackendUnavailableError(
                f"backend 'openblas' cannot be used: {found.reason}; {found.remedy}",
                value=self.name,
            )
        return folder


def package_folder() -> Path | None:
    """Where the wheel is installed, or None; found without importing it."""
    spec = importlib.util.find_spec("scipy_openblas32")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent


def library_path(folder: Path) -> Path:
    """The shared library inside the wheel's folder; it needs nothing but libc and libm."""
    return folder / "lib" / "libscipy_openblas.so"


def header_path(folder: Path) -> Path:
    """``cblas.h`` inside the wheel's folder."""
    return folder / "include" / "cblas.h"


def backend() -> OpenBLASBackend:
    """A new instance, for the registry."""
    return OpenBLASBackend()
