"""NVIDIA's GPUs, by way of nvcc. Compiling for one needs none here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tvm

from collage.backends.contract import BuildContext, LibraryRequirement
from collage.backends.contract.errors import (
    BackendUnavailableError,
    MeasurementError,
    TargetError,
)
from collage.backends.devices._base import DeviceKind
from collage.backends.toolchain.cuda_driver import CudaDriver, CudaError
from collage.backends.toolchain.cuda_runtime import (
    device_name,
    find_gpu,
    load_runtime,
    load_runtime_or_stub,
    nvcc_compiles,
)
from collage.backends.toolchain.cuda_toolkit import arch_of, compute_capability, cudart

_MOST_PRODUCTS_A_STEP = 1 << 25
"""Of a recurrent layer, up to which its kernels take no longer than a library's product on tensor
cores, which they have none of."""

_LIMITS = {"max_threads_per_block": 1024, "max_shared_memory_per_block": 49152}


class _CudaDevice(DeviceKind):
    """The GPUs that a process may see; models run on the first."""

    name = "cuda"
    target_kind = "cuda"
    lock_poll_sec = 0.002
    """A GPU changes hands every few dozen milliseconds."""
    captures_graphs = True
    links_kernels = True
    channels_last = True
    has_attention = True

    def any_target(self) -> tvm.target.Target:
        # Without an architecture TVM would look for a GPU.
        return tvm.target.Target({"kind": self.target_kind, "arch": "sm_90a"})

    def complete(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """See :meth:`DeviceKind.complete`; the architecture is by default that of the GPU here.

        Raises
        ------
        TargetError
            Without an architecture, when there is no GPU here.
        """
        if "arch" in attributes or "tag" in attributes:
            return {**_LIMITS, **attributes}
        gpu = find_gpu()
        if gpu is None:
            raise TargetError(
                "target 'cuda' needs an architecture, for there is no GPU here to ask for it: "
                "give for example {'kind': 'cuda', 'arch': 'sm_90a'} or cuda:arch=sm_90a",
                value=dict(attributes),
            )
        # Hopper's own instructions, which its libraries use, are in the architecture-specific set.
        arch = f"{gpu.arch}a" if gpu.arch == "sm_90" else gpu.arch
        return {**_LIMITS, "arch": arch, **attributes}

    def architecture(self, target: tvm.target.Target) -> str:
        return arch_of(target)

    def is_here(self) -> bool:
        return find_gpu() is not None

    def loops_over_steps(self, products: int, *, rounds_states: bool) -> bool:
        # Rounding takes the range of all rows at once, which are in several blocks.
        return products <= _MOST_PRODUCTS_A_STEP and not rounds_states

    def runtime_device(self) -> tvm.runtime.Device:
        return tvm.cuda(0)

    def lock_name(self, index: int = 0) -> str:
        """With the place that the GPU sits in, since each process counts the GPUs that it may see
        from 0. Asking makes no context on the device.
        """
        try:
            place = CudaDriver().pci_bus_id(index)
        except (MeasurementError, CudaError):
            # No driver, no GPU, or the stand-in that lets TVM compile without one.
            return self.name
        return f"{self.name}-{place.replace(':', '-')}"

    def required_libraries(self) -> tuple[LibraryRequirement, ...]:
        return (cudart(),)

    def prepare_compiler(self, context: BuildContext) -> None:
        load_runtime_or_stub(context)

    @contextmanager
    def compiling(
        self, target: tvm.target.Target, context: BuildContext
    ) -> Iterator[tvm.target.Target]:
        hosted = target.with_host(self.host_target(target))
        with nvcc_compiles(hosted, context):
            yield hosted

    def manifest_fields(self, target: tvm.target.Target) -> dict[str, str]:
        return {"device": self.name, "arch": arch_of(target)}

    def facts(self, arch: str, context: BuildContext) -> dict[str, Any] | None:
        name = device_name(arch, context)
        return (
            None if name is None else {"name": name, "compute_capability": compute_capability(arch)}
        )

    def unfit(self, arch: str) -> str:
        try:
            load_runtime()
        except BackendUnavailableError as err:
            return f"runs on a GPU: {err}"
        gpu = find_gpu()
        if gpu is None:
            return "runs on a GPU, and there is none here"
        if compute_capability(arch) != gpu.compute_capability:
            return (
                f"was compiled for {arch}, the GPU here is {gpu.arch}: "
                f"optimize the model for {gpu.arch}"
            )
        return ""


CUDA = _CudaDevice()
