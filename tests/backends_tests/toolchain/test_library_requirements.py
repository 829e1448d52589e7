"""Libraries that a machine must have, and targets that cannot share a process."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import tvm
from tvm import relax

from collage.backends.contract import (
    Availability,
    BackendTarget,
    BuildContext,
    ExternalBackend,
    LibraryRequirement,
    PatternTriple,
    registry,
)
from collage.backends.contract.errors import BackendUnavailableError, TargetError
from collage.backends.contract.requirements import RequiredLibrary
from collage.backends.link import library_requirements
from collage.backends.toolchain.load_requirements import load_libraries


class _RequiringBackend(ExternalBackend):
    """A backend that needs one library."""

    device = "cpu"

    def __init__(self, name: str, need: LibraryRequirement) -> None:
        self.name = name  # type: ignore[misc]
        self.need = need

    def probe(self) -> Availability:
        return Availability(True)

    def patterns(self, target: BackendTarget) -> Sequence[PatternTriple]:
        return ()

    def codegen(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> list[tvm.runtime.Module]:
        return []

    def required_libraries(self, target: BackendTarget) -> Sequence[LibraryRequirement]:
        return [self.need]


def _requirements(
    monkeypatch: pytest.MonkeyPatch, *required: LibraryRequirement
) -> tuple[LibraryRequirement, ...]:
    backends = {f"b{i}": _RequiringBackend(f"b{i}", need) for i, need in enumerate(required)}
    monkeypatch.setattr(registry, "get_backend", backends.__getitem__)
    device = tvm.target.Target("llvm")
    return library_requirements([BackendTarget(name, device) for name in backends])


OLD = LibraryRequirement("libblas.so.12", "12.9", "vendor-blas-12", Path("/a/libblas.so.12"))
NEW = LibraryRequirement("libblas.so.13", "13.1", "vendor-blas-13", Path("/b/libblas.so.13"))
OTHER = LibraryRequirement("libdnn.so.9", "9.1", "vendor-dnn", Path("/b/libdnn.so.9"))


def test_a_library_that_two_targets_share_is_needed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _requirements(monkeypatch, NEW, OTHER, NEW) == (NEW, OTHER)


def test_two_versions_of_a_library_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TargetError, match=r"libblas\.so\.12 of vendor-blas-12 12\.9 and") as caught:
        _requirements(monkeypatch, OLD, NEW)
    assert caught.value.value == (OLD, NEW)


def test_the_same_name_in_two_places_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = LibraryRequirement(NEW.soname, "13.0", NEW.package, Path("/c/libblas.so.13"))
    with pytest.raises(TargetError, match="leave one of them out"):
        _requirements(monkeypatch, NEW, elsewhere)


def test_a_library_beside_the_bundle_is_taken_first(tmp_path: Path) -> None:
    source, name = tmp_path / "beside.c", "libonly_beside.so.1"
    source.write_text("int answer(void) { return 42; }\n")
    command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{name}", str(source)]
    subprocess.run([*command, "-o", str(tmp_path / name)], check=True)
    needed = RequiredLibrary(name, "1.0", "beside")
    with pytest.raises(BackendUnavailableError, match=name):
        load_libraries([needed])
    load_libraries([needed], tmp_path)
    load_libraries([needed])  # It is known by its name from then on.
