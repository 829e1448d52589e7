"""Run a bundle where this project is not installed: TVM's runtime and numpy are enough.

python load_bundle.py BUNDLE
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import tvm
from tvm.runtime import vm


def main(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    # The libraries it needs lie in the bundle's lib/, where model.so looks for them.
    module = tvm.runtime.load_module(str((folder / manifest["library"]).resolve()))
    machine = vm.VirtualMachine(module, tvm.cpu())
    random = np.random.default_rng(0)
    inputs = [
        tvm.runtime.tensor(random.uniform(0, 2, info["shape"]).astype(info["dtype"]))
        for info in manifest["inputs"]
    ]
    result = machine[manifest["entry"]](*inputs)
    outputs = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
    for info, output in zip(manifest["outputs"], outputs, strict=True):
        array = output.numpy()
        print(f"{info['name']} {array.dtype}{list(array.shape)}: mean {array.mean():.6g}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
