"""CUDA's driver and management library through ctypes, on a stand-in."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from collage.backends.contract.errors import MeasurementError
from collage.backends.toolchain.cuda_driver import CudaDriver, CudaError
from collage.cost.base import Clocks
from collage.cost.device.nvml import Management
from tests.cost_tests.device.conftest import variable


def test_the_driver_gets_what_it_is_given(fake: Path) -> None:
    driver = CudaDriver(str(fake))
    assert driver.version() == "13.1"
    assert driver.pci_bus_id(0) == "0000:40:00.0" and driver.pci_bus_id(1) == "0000:41:00.0"
    assert driver.count() == 2
    assert driver.uuid(1) == "GPU-292a2b2c-2d2e-2f30-3132-333435363738"
    driver.fill(0x7F00_1234_5600, 5_000_000_000, 0x5555_0000_0008)
    log = (ctypes.c_char * 4096).in_dll(ctypes.CDLL(str(fake)), "fake_log").value.decode()
    assert log == "fill 7f0012345600 0 5000000000 555500000008\n"
    driver.synchronize()
    with pytest.raises(CudaError, match=r"cuDeviceGet: 101 \(no description\)"):
        driver.pci_bus_id(5)


@pytest.mark.parametrize(("code", "fatal"), [(700, True), (719, True), (900, False), (2, False)])
def test_some_errors_lose_the_context(fake: Path, code: int, fatal: bool) -> None:
    driver = CudaDriver(str(fake))
    error = variable(fake, "fake_error")
    error.value = code
    try:
        with pytest.raises(CudaError, match="cuCtxSynchronize") as caught:
            driver.synchronize()
    finally:
        error.value = 0
    assert caught.value.is_fatal is fatal and caught.value.value == code
    if code == 700:
        assert "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access" in str(caught.value)


def test_a_driver_that_lacks_functions_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match=r"no such\.so"):
        CudaDriver(str(tmp_path / "no such.so"))
    stub = tmp_path / "libstub.so"
    code = "int cuDriverGetVersion(int* v) { return 100; }"
    subprocess.run(
        ["gcc", "-shared", "-x", "c", "-o", stub, "-"], input=code, text=True, check=True
    )
    with pytest.raises(MeasurementError, match="no 'cuInit'"):
        CudaDriver(str(stub))


def test_clocks_are_read_where_they_can_be(fake: Path, tmp_path: Path) -> None:
    management = Management.open("0000:40:00.0", str(fake))
    assert management is not None
    assert management.clocks() == Clocks(sm_mhz=1980, memory_mhz=3201)
    assert management.driver_version() == "580.65.06"
    other = Management.open("0000:99:00.0", str(fake))
    assert other is not None and other.clocks() is None
    forbidden = variable(fake, "fake_no_clocks")
    forbidden.value = 1
    try:
        assert management.clocks() is None
    finally:
        forbidden.value = 0
    assert Management.open("0000:40:00.0", str(tmp_path / "none.so")) is None
