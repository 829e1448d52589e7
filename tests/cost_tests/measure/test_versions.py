"""What workers say of themselves."""

from __future__ import annotations

from collage.backends.contract import ExternalBackend
from collage.backends.contract.registry import backend_names, get_backend
from collage.cost.device import CPU_POLICY, CUDA_POLICY
from collage.cost.engines import LocalEngine
from collage.cost.measure.versions import differences, versions_here


def test_versions_are_of_what_takes_part() -> None:
    """Another device's libraries may differ; those that keys of records name must not."""
    for policy in (CPU_POLICY, CUDA_POLICY):
        versions = versions_here(policy)
        assert versions["compiler"].startswith("g++")
        for backend in map(get_backend, backend_names()):
            found = backend.probe()
            # Of none whatever holds: tests register backends that stand on nothing.
            if isinstance(backend, ExternalBackend) and found.usable and found.versions:
                named = found.versions.items() <= versions.items()
                assert named == (backend.device == policy.kind.name), backend.name


def test_only_what_is_needed_here_must_agree() -> None:
    here = versions_here(CPU_POLICY)
    assert differences(here, here) == ""
    assert differences({**here, "a library of its own": "1"}, here) == ""
    assert differences({**here, "collage": "0.0.1, sources 0"}, here).startswith("collage is 0.0.1")
    lacking = {name: version for name, version in here.items() if name != "compiler"}
    assert differences(lacking, here) == f"no compiler, here {here['compiler']}"


def test_this_machine_tells_what_it_has() -> None:
    (info,) = LocalEngine().inspect(CPU_POLICY)
    assert info.usable and info.device == CPU_POLICY.detect() and info.versions
    assert info.load is not None and info.load >= 0 and info.builds >= 1
    if not CUDA_POLICY.kind.is_here():
        (info,) = LocalEngine().inspect(CUDA_POLICY)
        assert not info.usable and info.device is None and "\n" not in info.reason
