"""What every place times again and again, so that it is known whether their times compare.

Three kernels of TVM's, which run wherever candidates do: one that moves memory, one that computes,
and one so small that calling it is all there is. A device that is short of power, hot, throttled or
shared shows it in one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import tvm
from tvm import ir, relax

from collage.backends.contract import PARTITION_ATTR, BackendTarget
from collage.backends.contract.errors import MeasurementError
from collage.cost.base import CostStatus
from collage.cost.device import DevicePolicy
from collage.cost.measure.builder import Builder, BuildJob
from collage.cost.measure.engine import Place
from collage.cost.measure.runner import RunJob
from collage.cost.workload.workload import Workload

REFERENCE_BACKEND = "tvm"

_SMALL = 8

Times = Mapping[str, float | str]
"""Seconds that each workload took in one round at one place, or why there is no time."""


def reference_workloads(policy: DevicePolicy) -> dict[str, Workload]:
    """The workloads, by what they are limited by.

    Examples
    --------
    >>> from collage.cost.device import CPU_POLICY
    >>> {name: one.describe() for name, one in reference_workloads(CPU_POLICY).items()}
    {'memory': 'relu 2097152', 'compute': 'matmul 384x384 * 384x384', 'launch': 'relu 8'}
    """
    extent = policy.reference_extent
    return {
        "memory": _workload([(policy.reference_elements,)], relax.op.nn.relu),
        "compute": _workload([(extent, extent)] * 2, relax.op.matmul),
        "launch": _workload([(_SMALL,)], relax.op.nn.relu),
    }


class ReferenceSet:
    """The workloads, built.

    Parameters
    ----------
    jobs : mapping of str to RunJob
        By name.

    Examples
    --------
    >>> ReferenceSet({}).names
    ()
    """

    def __init__(self, jobs: Mapping[str, RunJob]) -> None:
        self._jobs = dict(jobs)

    @classmethod
    def build(
        cls, policy: DevicePolicy, target: tvm.target.Target, builder: Builder, folder: Path
    ) -> ReferenceSet:
        """Have them compiled.

        Parameters
        ----------
        policy : DevicePolicy
            Of the kind of device.
        target : tvm.target.Target
            What the places are, exactly.
        builder : Builder
            Compiles them.
        folder : Path
            Keeps them for as long as they are used.

        Returns
        -------
        ReferenceSet
            Jobs to run, by the names of the workloads.

        Raises
        ------
        MeasurementError
            When one of them cannot be compiled: nothing is known of the places then.
        """
        native = BackendTarget.of(REFERENCE_BACKEND, target)
        workloads = reference_workloads(policy)
        jobs = [BuildJob(one, native, folder / name) for name, one in workloads.items()]
        for name, result in zip(workloads, builder.build(jobs), strict=True):
            if result.status is not CostStatus.VALID:
                raise MeasurementError(
                    f"the reference set, by which devices are compared, cannot be built ({name}: "
                    f"{result.reason})",
                    value=name,
                )
        return cls({job.folder.name: RunJob.in_folder(job.folder) for job in jobs})

    @property
    def names(self) -> tuple[str, ...]:
        """Of the workloads."""
        return tuple(self._jobs)

    def time(self, place: Place) -> dict[str, float | str]:
        """One round at one place, whose device is held meanwhile.

        Raises
        ------
        PlaceLostError
            When the place is gone.
        """
        times: dict[str, float | str] = {}
        for name, job in self._jobs.items():
            cost = place.runner.run(job).cost
            times[name] = cost.median_sec if cost.is_valid else cost.reason
        return times


def _workload(shapes: Sequence[tuple[int, ...]], operator: Callable[..., relax.Expr]) -> Workload:
    """One native partition of one operator."""
    builder = relax.BlockBuilder()
    types = [relax.TensorType(shape, "float32") for shape in shapes]
    params = [relax.Var(f"x{i}", one) for i, one in enumerate(types)]
    with builder.function("step", params, attrs={PARTITION_ATTR: REFERENCE_BACKEND}, private=True):
        with builder.dataflow():
            out = builder.emit_output(operator(*params))
        builder.emit_func_output(out)
    step = builder.get().get_global_var("step")
    outer = [relax.Var(f"y{i}", one) for i, one in enumerate(types)]
    with builder.function("main", outer):
        with builder.dataflow():
            out = builder.emit_output(ir.Call(step, outer))
        builder.emit_func_output(out)
    return Workload.from_module(builder.get())
