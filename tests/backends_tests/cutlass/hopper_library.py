"""Compiles Hopper's kernels for the model of its copies, barriers and products on the CPU."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collage.backends.cutlass.library import TEMPLATES
from collage.backends.toolchain.cuda_toolkit import find_toolkit

Array = NDArray[Any]


def compile_for_host(source: str, folder: Path) -> ctypes.CDLL:
    """The library of a source beside this file."""
    here = Path(__file__).parent
    output = folder / "hopper.so"
    toolkit = find_toolkit().include
    folders = (here, here.parent, TEMPLATES, toolkit, toolkit / "cccl")
    command = ["g++", "-std=c++17", "-O2", "-w", "-shared", "-fPIC"]
    command += [f"-I{folder}" for folder in folders]
    subprocess.run([*command, "-o", str(output), str(here / source)], check=True)
    return ctypes.CDLL(str(output))


def pointers(arrays: list[Array]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def integers(values: list[int]) -> Any:
    return (ctypes.c_int64 * len(values))(*values)


def drawn(rng: np.random.Generator, *shape: int) -> Array:
    return (rng.standard_normal(shape) / 2).astype(np.float16)
