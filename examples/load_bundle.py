"""Run a bundle where this project is not installed: TVM's runtime and numpy are enough.

python load_bundle.py BUNDLE
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm.runtime import vm


def load(folder: Path) -> tuple[vm.VirtualMachine, tvm.runtime.Device, dict[str, Any]]:
    """A bundle's functions, the device they run on, and its manifest."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    device = tvm.device(manifest.get("device", "cpu"))
    if manifest.get("device") == "cuda":
        load_cuda(manifest)
    # The libraries it brings lie in the bundle's lib/, where model.so looks for them.
    module = tvm.runtime.load_module(str((folder / manifest["library"]).resolve()))
    return vm.VirtualMachine(module, device), device, manifest


def load_cuda(manifest: Mapping[str, Any]) -> None:
    """NVIDIA's libraries, from the wheels or from where the loader looks, and TVM's for CUDA."""
    if any(name.startswith("python:") for name in manifest["runtimes"].values()):
        sys.exit("TensorRT's engines run here through its Python package: use collage.load")
    for need in manifest["required_libraries"]:
        soname = need["soname"]
        wheels = (path for entry in sys.path for path in Path(entry).glob(f"nvidia/*/lib/{soname}"))
        ctypes.CDLL(str(next(wheels, soname)), ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so"))


def main(folder: Path) -> None:
    machine, device, manifest = load(folder)
    random = np.random.default_rng(0)
    inputs = [
        tvm.runtime.tensor(random.uniform(0, 2, info["shape"]).astype(info["dtype"]), device)
        for info in manifest["inputs"]
    ]
    result = machine[manifest["entry"]](*inputs)
    outputs = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
    for info, output in zip(manifest["outputs"], outputs, strict=True):
        array = output.numpy()
        print(f"{info['name']} {array.dtype}{list(array.shape)}: mean {array.mean():.6g}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
