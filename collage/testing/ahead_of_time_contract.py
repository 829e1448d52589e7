"""What every backend must keep whose code this machine cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest

import collage
from collage.backends.contract import BackendTarget, BuildContext, ExternalBackend, RunsElsewhere
from collage.backends.contract.errors import TargetError
from collage.backends.devices import CPU
from collage.cost.models.roofline import DeviceSpec, RooflineCostModel
from collage.testing.backend_cases import PatternCase
from collage.testing.backend_statements import BackendStatements

SOME_DEVICE = DeviceSpec("some device", 4e12, 2e12, 2e12, bytes_per_sec=60e9)


class AheadOfTimeContract(BackendStatements):
    """The suite of an external backend that :class:`RunsElsewhere`: nothing is run.

    Derive a test class, name the backend and override the fixture ``cases``; and ``target`` where
    its options or its device need saying, such as another ``mtriple``.

    Examples
    --------
    >>> class TestMyBackend(AheadOfTimeContract):
    ...     backend_name = "board"  # As examples/ahead_of_time_backend registers it.
    >>> issubclass(TestMyBackend, BackendStatements)
    True
    """

    def test_says_why_it_cannot_run_here(
        self, backend: ExternalBackend, target: BackendTarget
    ) -> None:
        assert isinstance(backend, RunsElsewhere)
        assert backend.unfit_here(target)

    def test_is_not_measured_here(
        self, backend: ExternalBackend, target: BackendTarget, cases: list[PatternCase]
    ) -> None:
        assert isinstance(backend, RunsElsewhere)
        with pytest.raises(TargetError, match="cannot be measured on this machine") as caught:
            collage.optimize(cases[0].mod, [target.device, target])
        assert backend.unfit_here(target) in str(caught.value)

    def test_compiles_every_case(
        self,
        backend: ExternalBackend,
        target: BackendTarget,
        context: BuildContext,
        cases: list[PatternCase],
    ) -> None:
        library = self.compile(backend, target, context, cases, "cases").read_bytes()
        found = library.count(f"_{backend.name}\0".encode())
        assert found >= len(cases), "not every partition is an exported function"

    def test_is_estimated_and_exported(
        self, target: BackendTarget, cases: list[PatternCase], tmp_path: Path
    ) -> None:
        result = collage.optimize(
            cases[0].mod,
            [target.device, target],
            strategy=f"single:{target.name}",
            cost_model=RooflineCostModel(SOME_DEVICE),
        )
        kinds = [candidate.backend for candidate in result.partitioning.candidates]
        assert target.name in kinds
        (row,) = result.report.end_to_end
        assert row.median_sec is not None and row.median_sec > 0.0
        bundle = result.export(tmp_path / "bundle")
        assert f"{target.name}_0".encode() in (bundle / "model.so").read_bytes()
        manifest = collage.bundle.read_manifest(bundle)
        assert manifest.architecture == CPU.machine(target.device)
