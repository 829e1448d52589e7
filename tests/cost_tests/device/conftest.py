"""A stand-in for CUDA's driver and management library."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("fake") / "libfake_cuda.so"
    source = Path(__file__).with_name("fake_cuda.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wall", "-o", library, source], check=True)
    return library


def variable(fake: Path, name: str) -> ctypes.c_int:
    return ctypes.c_int.in_dll(ctypes.CDLL(str(fake)), name)
