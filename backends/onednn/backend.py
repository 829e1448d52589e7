"""oneDNN on a CPU: whole regions with their own layouts, packed weights and fused chains.

Library and headers come from the ``onednn-cpu-gomp`` and ``onednn-devel-cpu-gomp`` distributions,
which run on GNU OpenMP: the pool that every CPU backend shares.
"""

from __future__ import annotations

import os
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
from collage.backends.onednn.codegen import compile_functions, runtime_compilation
from collage.backends.onednn.options import OnednnOptions
from collage.backends.onednn.patterns import pattern_table
from collage.backends.toolchain.native import Compilation

LIBRARY = ("onednn-cpu-gomp", "libdnnl.so.3")
HEADER = ("onednn-devel-cpu-gomp", "oneapi/dnnl/dnnl.hpp")
REMEDY = 'pip install "onednn-cpu-gomp>=2023.2,<2024" "onednn-devel-cpu-gomp>=2023.2,<2024"'


class OnednnBackend(ExternalBackend, BundlesLibraries, Precompiles):
    """Regions of convolutions, matrix products and what stands between them, through oneDNN."""

    name = "onednn"
    device = "cpu"
    granularity = Granularity.GRAPH
    options_type = OnednnOptions

    def probe(self) -> Availability:
        for distribution, file in (LIBRARY, HEADER):
            if find_file(distribution, file) is None:
                reason = f"{file} of {distribution} is not installed"
                return Availability(False, reason=reason, remedy=REMEDY)
        return Availability(True, versions={"onednn": metadata.version(LIBRARY[0])})

    def patterns(self, target: BackendTarget) -> Sequence[PatternTriple]:
        return pattern_table()

    def codegen(
        self,
        functions: Sequence[relax.Function],
        target: BackendTarget,
        context: BuildContext,
    ) -> list[tvm.runtime.Module]:
        return [compile_functions(functions, target.options, self._include(), context)]

    def compilations(self, target: BackendTarget, context: BuildContext) -> Sequence[Compilation]:
        return [runtime_compilation(self._include(), context)]

    def shared_libraries(self, target: BackendTarget) -> Sequence[Path]:
        return (self._file(*LIBRARY),)

    def _include(self) -> Path:
        return self._file(*HEADER).parents[2]

    def _file(self, distribution: str, name: str) -> Path:
        path = find_file(distribution, name)
        if path is None:
            found = self.probe()
            raise BackendUnavailableError(
                f"backend 'onednn' cannot be used: {found.reason}; {found.remedy}", value=self.name
            )
        return path


def find_file(distribution: str, name: str) -> Path | None:
    """Where an installed distribution put a file whose path ends in ``name``, or None."""
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.as_posix().endswith("/" + name):
            # Not resolved: the library's link name is the one that programs look for.
            path = Path(os.path.normpath(str(file.locate())))
            return path if path.is_file() else None
    return None


def backend() -> OnednnBackend:
    """The instance to register; the entry point of this backend."""
    return OnednnBackend()
