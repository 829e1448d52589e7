"""The reference set that places are compared by, built and run."""

from __future__ import annotations

from pathlib import Path

import pytest
import tvm

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import MeasurementError
from collage.backends.devices import CPU
from collage.cost.config import MeasureConfig
from collage.cost.device import CPU_POLICY
from collage.cost.measure.engine import Place
from collage.cost.measure.local_builder import LocalBuilder
from collage.cost.measure.local_runner import LocalRunner
from collage.cost.measure.places.reference_set import ReferenceSet, reference_workloads


def test_a_reference_set_that_cannot_be_built_is_said_by_whom(
    context: BuildContext, tmp_path: Path
) -> None:
    nobody = tvm.target.Target({"kind": "llvm", "mtriple": "nowhere-unknown-none"})
    with (
        LocalBuilder(context, MeasureConfig(), parallel=1) as builder,
        pytest.raises(MeasurementError, match=r"reference set.*cannot be built"),
    ):
        ReferenceSet.build(CPU_POLICY, nobody, builder, tmp_path)


def test_the_reference_set_is_right_and_does_what_its_names_say(
    context: BuildContext, tmp_path: Path
) -> None:
    target = tvm.target.Target(CPU.complete({"kind": "llvm"}))
    workloads = reference_workloads(CPU_POLICY)
    assert workloads["memory"].bytes > 8e6 and workloads["memory"].flops < 1e7
    assert workloads["compute"].flops > 1e8 and workloads["compute"].bytes < 2e6
    with (
        LocalBuilder(context, MeasureConfig(), parallel=1) as builder,
        LocalRunner(MeasureConfig()) as runner,
    ):
        made = ReferenceSet.build(CPU_POLICY, target, builder, tmp_path)
        place = Place("cpu", runner)
        with place.hold(lambda: None, lambda: False):
            times = made.time(place)
    assert set(times) == {"memory", "compute", "launch"}
    assert all(isinstance(sec, float) and 0 < sec < 1 for sec in times.values()), times
