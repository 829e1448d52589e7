"""What identifies a CUDA device: asked of ``pycuda`` where it is installed, of TVM otherwise."""

from __future__ import annotations

from dataclasses import dataclass

import tvm

from collage.backends.contract.errors import BackendUnavailableError, MeasurementError
from collage.backends.toolchain.cuda_driver import CudaDriver, CudaError
from collage.backends.toolchain.cuda_runtime import load_runtime
from collage.cost.device.cuda.clocks import Management


@dataclass(frozen=True)
class CudaFacts:
    """A CUDA device.

    Attributes
    ----------
    name : str
        For example ``NVIDIA H200``.
    multiprocessors : int
    compute_capability : str
        For example ``9.0``.
    memory_bytes : int
        All of its memory.
    driver : str
        The driver's version, where it can be read, and the newest CUDA release it supports.
    """

    name: str
    multiprocessors: int
    compute_capability: str
    memory_bytes: int
    driver: str


def read_facts(index: int = 0) -> CudaFacts:
    """The facts of a device of this machine.

    Raises
    ------
    MeasurementError
        When there is no such device or its driver does not work.
    """
    try:
        facts = _from_pycuda(index)
    except ImportError:
        facts = _from_tvm(index)
    return facts


def _from_pycuda(index: int) -> CudaFacts:
    import pycuda.driver as cuda

    try:
        cuda.init()
        device = cuda.Device(index)
    except cuda.Error as err:
        raise MeasurementError(f"no CUDA device can be used: {err}", value=index) from err
    number = cuda.get_driver_version()
    release = f"{number // 1000}.{number % 1000 // 10}"
    return CudaFacts(
        device.name(),
        device.get_attribute(cuda.device_attribute.MULTIPROCESSOR_COUNT),
        ".".join(map(str, device.compute_capability())),
        device.total_memory(),
        _driver_text(release, device.pci_bus_id()),
    )


def _from_tvm(index: int) -> CudaFacts:
    try:
        load_runtime()
        device = tvm.cuda(index)
        if not device.exist:
            raise MeasurementError(f"there is no CUDA device {index}", value=index)
        driver = CudaDriver()
        return CudaFacts(
            str(device.device_name),
            int(device.multi_processor_count),
            str(device.compute_version),
            int(device.total_global_memory),
            _driver_text(driver.version(), driver.pci_bus_id(index)),
        )
    except (BackendUnavailableError, CudaError) as err:
        raise MeasurementError(f"no CUDA device can be used: {err}", value=index) from err


def _driver_text(release: str, pci_bus_id: str) -> str:
    management = Management.open(pci_bus_id)
    version = management.driver_version() if management is not None else ""
    return f"{version}, CUDA {release}" if version else f"CUDA {release}"
