"""TVM's own code generator as a backend: partitions become scheduled tensor programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.target import codegen

from collage.backends.contract import (
    Availability,
    BackendTarget,
    BuildContext,
    NativeBackend,
    PatternTriple,
    Roofline,
    TakesLayouts,
)
from collage.backends.contract.errors import TargetError
from collage.backends.devices import CPU, CUDA, device_of
from collage.backends.tvm import cpu, cuda
from collage.backends.tvm import tuning as tune
from collage.backends.tvm.common.lower import lower_apart, lower_module
from collage.backends.tvm.cpu.schedules import Machine
from collage.backends.tvm.layouts import takes_any_order
from collage.backends.tvm.options import TVMOptions


class TVMBackend(NativeBackend, TakesLayouts):
    """Runs every operator that TVM can legalize: through LLVM on a CPU, as CUDA on a GPU.

    Examples
    --------
    >>> TVMBackend().probe().usable
    True
    >>> TVMBackend().parse_options({"schedule": "fast"})
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.TargetError: target 'tvm': attribute 'schedule' ...
    """

    name = "tvm"
    device = "cpu"
    # Raised for the reference: until 2, kernels that take halves to even numbers were called wrong.
    codegen_version = "2"
    options_type = TVMOptions

    def probe(self) -> Availability:
        """Always usable: TVM is what this project stands on."""
        return Availability(
            usable=True,
            versions={
                "apache-tvm": str(tvm.__version__),
                "apache-tvm-ffi": str(tvm_ffi.__version__),
                "llvm": str(codegen.llvm_version_major()),
            },
        )

    def roofline(self, device: tvm.target.Target) -> Roofline:
        """See :meth:`Backend.roofline`; on a GPU far from what libraries reach, but for memory."""
        return _ROOFLINES[device_of(device)]

    def patterns(self, target: BackendTarget) -> Sequence[PatternTriple]:
        """None: its candidates come from operator kinds, not from patterns."""
        return ()

    def takes_other_layout(self, operators: Sequence[relax.Expr], target: BackendTarget) -> bool:
        return takes_any_order(operators)

    def lower(
        self, mod: tvm.IRModule, target: BackendTarget, context: BuildContext
    ) -> tvm.IRModule:
        """Replace this backend's partitions, and operators left in ``main``, by scheduled kernels.

        Functions with a ``Codegen`` attribute stay as they are.

        Raises
        ------
        TargetError
            When the option ``schedule`` asks for something that this device or machine cannot do.
        """
        lower = _LOWERINGS[device_of(target.device)]
        plain = replace(target, options=TVMOptions(schedule=PLAIN))
        mod = lower_apart(mod, _is_plain, lambda marked: lower(marked, plain, context))
        return lower(mod, target, context)

    def last_resort(self, target: BackendTarget) -> BackendTarget | None:
        """See :meth:`NativeBackend.last_resort`: the simplest loops there are."""
        plain = replace(target, options=TVMOptions(schedule=PLAIN))
        return None if plain == target else plain

    def partition_attributes(self, options: Any) -> dict[str, str]:
        """See :meth:`NativeBackend.partition_attributes`."""
        return {_SCHEDULE_ATTR: PLAIN} if options.schedule == PLAIN else {}


PLAIN = "plain"
_SCHEDULE_ATTR = "collage.partition_schedule"


def _is_plain(function: relax.Function) -> bool:
    return bool(function.attrs) and function.attrs.get(_SCHEDULE_ATTR) == PLAIN


def _lower_cpu(mod: tvm.IRModule, target: BackendTarget, context: BuildContext) -> tvm.IRModule:
    options: TVMOptions = target.options
    machine = Machine.of_target(target.device, context.num_threads)
    if options.schedule == "dlight":
        raise TargetError(
            "schedule 'dlight' is for GPU targets; valid for a CPU: default, metaschedule, none, "
            "plain",
            value=options.schedule,
        )

    def schedule_all(funcs: Sequence[tirx.PrimFunc]) -> Sequence[tirx.PrimFunc]:
        if options.schedule != "metaschedule":
            return cpu.schedule_all(funcs, machine, options.schedule)
        tuned = tune.tune_kernels(funcs, target, context)
        default = cpu.schedule_all(funcs, machine, "default")
        return [new or old for new, old in zip(tuned, default, strict=True)]

    return lower_module(
        mod, target.device, cpu.legalize_passes(machine, options.schedule), schedule_all
    )


def _lower_cuda(mod: tvm.IRModule, target: BackendTarget, context: BuildContext) -> tvm.IRModule:
    options: TVMOptions = target.options
    tuned_wanted = options.schedule == "metaschedule"
    schedule = cuda.scheduler(target.device, "default" if tuned_wanted else options.schedule)

    def schedule_all(funcs: Sequence[tirx.PrimFunc]) -> Sequence[tirx.PrimFunc]:
        default = [schedule(func) for func in funcs]
        if not tuned_wanted:
            return default
        tuned = tune.tune_kernels(funcs, target, context)
        return [
            old if new is None else cuda.finish(new)
            for new, old in zip(tuned, default, strict=True)
        ]

    return lower_module(mod, target.device, cuda.legalize_passes(options.schedule), schedule_all)


_LOWERINGS = {CPU: _lower_cpu, CUDA: _lower_cuda}
_ROOFLINES = {
    CPU: Roofline(0.80, 0.60, 0.40, operator_sec=0.5e-6),
    CUDA: Roofline(matmul=0.25, convolution=0.05, attention=0.10, memory=0.70),
}


def backend() -> TVMBackend:
    """The instance that the registry keeps."""
    return TVMBackend()
