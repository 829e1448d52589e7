"""An estimate of costs from a device's data sheet, for machines that do not have the device.

The roofline model (Williams, Waterman, Patterson, CACM 52(4), 2009): a kernel takes as long as its
arithmetic or its memory traffic, whichever is more. How close a library comes to those limits, its
backend says. These are estimates: they rank candidates well enough to
compile a model for a GPU that is not here, and they are never written to a log of measurements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tvm import ir

from collage.backends.contract import BackendTarget, Precision, Roofline
from collage.backends.contract.errors import TargetError
from collage.backends.relax.tensor_spec import TensorSpec
from collage.cost.base import Cost, CostModel, CostStatus, Overheads
from collage.cost.workload.describe import (
    call_flops,
    calls_of,
    composites_of,
    operator_calls,
)
from collage.cost.workload.workload import Workload


@dataclass(frozen=True)
class DeviceSpec:
    """A device's limits, as its maker states them (dense, without sparsity).

    Attributes
    ----------
    name : str
    half_flops_per_sec : float
        Of the matrix units, for float16 and bfloat16 with float32 accumulation.
    tf32_flops_per_sec : float
        Of the matrix units, for float32 rounded to TF32.
    float_flops_per_sec : float
        Of the ordinary units, for float32.
    bytes_per_sec : float
        Memory bandwidth.
    launch_sec : float
        From the end of one kernel to the start of the next in a captured graph.

    Examples
    --------
    >>> from tvm.target import Target
    >>> phone = DeviceSpec("a phone", 4e12, 2e12, 2e12, bytes_per_sec=60e9)
    >>> RooflineCostModel(phone).spec(BackendTarget.of("tvm", Target("llvm"))).launch_sec
    2e-06
    """

    name: str
    half_flops_per_sec: float
    tf32_flops_per_sec: float
    float_flops_per_sec: float
    bytes_per_sec: float
    launch_sec: float = 2e-6


SPECS: Mapping[str, DeviceSpec] = {
    "sm_80": DeviceSpec("NVIDIA A100 80GB", 312e12, 156e12, 19.5e12, 2.04e12),
    "sm_86": DeviceSpec("NVIDIA A10", 125e12, 62.5e12, 31.2e12, 0.6e12),
    "sm_89": DeviceSpec("NVIDIA L40S", 362e12, 183e12, 91.6e12, 0.864e12),
    "sm_90": DeviceSpec("NVIDIA H200", 989e12, 495e12, 67e12, 4.8e12),
    "sm_100": DeviceSpec("NVIDIA B200", 2250e12, 1125e12, 75e12, 8.0e12),
}
"""By compute capability: the data-centre GPU of each generation."""

CPU = DeviceSpec("a CPU", 2e11, 2e11, 2e11, bytes_per_sec=2e10, launch_sec=1e-6)
"""A nominal one, about as fast as two cores with AVX-512."""

NOMINAL: Mapping[str, DeviceSpec] = {"cpu": CPU, "cuda": SPECS["sm_90"]}
"""By kind of device, one that what was measured is set in relation to."""

_OF_KINDS: Mapping[str, DeviceSpec] = {"llvm": CPU}
"""By kind of TVM's target, where one device stands for all of the kind."""


class RooflineCostModel(CostModel):
    """Estimates the cost of workloads on a CUDA device that need not be here, or on a CPU.

    Parameters
    ----------
    spec : DeviceSpec, optional
        The device; by default that of the target's architecture in ``SPECS``.
    rooflines : mapping of str to Roofline, optional
        By target's name; in place of what the backends say of themselves.

    Examples
    --------
    >>> import tvm
    >>> gpu = BackendTarget("tvm", tvm.target.Target({"kind": "cuda", "arch": "sm_90a"}))
    >>> model = RooflineCostModel()
    >>> model.spec(gpu).name, model.overheads(gpu).partition_sec
    ('NVIDIA H200', 2e-06)
    """

    def __init__(
        self,
        spec: DeviceSpec | None = None,
        rooflines: Mapping[str, Roofline] | None = None,
    ) -> None:
        self._spec = spec
        self._rooflines = dict(rooflines or {})

    def estimate(
        self, workloads: Sequence[Workload], targets: Sequence[BackendTarget]
    ) -> list[Cost]:
        """The estimated cost of each workload on the target at the same position; always valid.

        Raises
        ------
        TargetError
            When no device was given and the target's is not known.
        """
        return [
            self._cost(workload, target)
            for workload, target in zip(workloads, targets, strict=True)
        ]

    def overheads(self, target: BackendTarget) -> Overheads:
        """Nothing per call, one launch per partition."""
        return Overheads(0.0, self.spec(target).launch_sec)

    def spec(self, target: BackendTarget) -> DeviceSpec:
        """The device that a target's costs are estimated for.

        Raises
        ------
        TargetError
            When no device was given and the target's is not known.
        """
        if self._spec is not None:
            return self._spec
        device = target.device
        arch = str(device.attrs.get("arch", ""))
        found = _OF_KINDS.get(device.kind.name) or SPECS.get(arch.rstrip("af"))
        if found is None:
            raise TargetError(
                f"no data sheet for {arch or device.kind.name}; give a DeviceSpec, or one of the "
                f"architectures {', '.join(SPECS)}",
                value=arch,
            )
        return found

    def _cost(self, workload: Workload, target: BackendTarget) -> Cost:
        spec = self.spec(target)
        backend = target.implementation
        roofline = self._rooflines.get(target.name) or backend.roofline(target.device)
        precision = backend.precision(target.options)
        bytes_per_sec = roofline.memory * spec.bytes_per_sec
        work = _Work.of(workload)
        # What is no product is fused into its neighbours: it adds arithmetic, but no traffic.
        busy_sec = work.other_flops / spec.float_flops_per_sec
        for product in work.products:
            peak = _product_peak(spec, product.dtype, precision)
            share = getattr(roofline, product.kind)
            busy_sec += max(product.flops / (share * peak), product.bytes / bytes_per_sec)
        seconds = max(busy_sec, workload.bytes / bytes_per_sec) + roofline.partition_sec
        if roofline.operator_sec is None:
            seconds += spec.launch_sec * max(1, len(work.products))
        else:
            seconds += roofline.operator_sec * _library_calls(workload)
        return Cost(CostStatus.VALID, seconds, samples_sec=(seconds,))


@dataclass(frozen=True)
class _Product:
    kind: str
    dtype: str
    flops: int
    bytes: int


@dataclass
class _Work:
    """What a workload computes: matrix products of some kind, and the rest."""

    products: list[_Product] = field(default_factory=list)
    other_flops: int = 0

    @classmethod
    def of(cls, workload: Workload) -> _Work:
        work = cls()
        for call in operator_calls(workload.module):
            kind = _kind(str(call.op.name))
            if kind is None:
                work.other_flops += call_flops(call)
                continue
            operands = [TensorSpec.of(arg.ty) for arg in call.args if _is_tensor(arg.ty)]
            moved = sum(spec.bytes for spec in (*operands, TensorSpec.of(call.ty)))
            work.products.append(_Product(kind, operands[0].dtype, call_flops(call), moved))
        return work


def _library_calls(workload: Workload) -> int:
    """Operators that a library runs one by one: its composites, each with what is fused into it,
    but for those that only give a tensor another shape. A partition without any is one kernel."""
    composites = composites_of(workload.module)
    return max(1, sum(any(map(call_flops, calls_of(one))) for one in composites))


def _is_tensor(ty: ir.Type) -> bool:
    return hasattr(ty, "shape") and hasattr(ty, "dtype")


def _kind(name: str) -> str | None:
    if name == "relax.matmul":
        return "matmul"
    if name.startswith("relax.nn.conv"):
        return "convolution"
    return "attention" if name.startswith("relax.nn.attention") else None


def _product_peak(spec: DeviceSpec, dtype: str, precision: Precision) -> float:
    if dtype in ("float16", "bfloat16"):
        return spec.half_flops_per_sec
    return {
        Precision.FLOAT32: spec.float_flops_per_sec,
        Precision.TF32X3: spec.tf32_flops_per_sec / 3,  # Three products make up one.
        Precision.TF32: spec.tf32_flops_per_sec,
        Precision.FLOAT16: spec.half_flops_per_sec,
        Precision.BFLOAT16: spec.half_flops_per_sec,
        Precision.INT8: 2 * spec.half_flops_per_sec,  # Numbers of half the width.
    }[precision]
