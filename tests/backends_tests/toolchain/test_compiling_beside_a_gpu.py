"""Who only compiles for a GPU does not begin to use it: the driver lets in one at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from collage.backends.contract import BuildContext
from collage.backends.toolchain.cuda_runtime import device_name
from collage.backends.toolchain.cuda_toolkit import cudart

CALLS = ("GetDeviceCount", "GetDevice", "SetDevice", "DeviceGetAttribute", "GetDeviceProperties")

PRELOADED = "#include <stdio.h>\n" + "".join(
    f'int cuda{name}(void) {{ fprintf(stderr, "asked: {name}\\n"); return 100; }}\n'
    for name in (*CALLS, "MemGetInfo", "Malloc", "Free", "StreamCreate")
)

COMPILES = """
import sys
from pathlib import Path
from tvm.relax import op
from collage.backends.compile import compile_module
from collage.backends.contract import BuildContext
from collage.targets import resolve_targets
from collage.testing import graph

targets = resolve_targets([{"kind": "cuda", "arch": "sm_90a"}])
mod = graph([(64, 64)], lambda emit, x: emit(op.nn.softmax(emit(op.matmul(x, x)))))
folder = Path(sys.argv[1])
(folder / "work").mkdir()
context = BuildContext(folder / "cache", folder / "work")
compile_module(mod, [targets.native], folder / "model.so", context)
print("compiled", flush=True)
if "asks" in sys.argv:
    import tvm
    tvm.cuda(0).exist
"""


@pytest.mark.cuda
@pytest.mark.parametrize("asks", [False, True])
def test_a_compiled_model_is_let_go_without_asking_for_a_device(asks: bool, tmp_path: Path) -> None:
    source, library = tmp_path / "preloaded.c", tmp_path / "preloaded.so"
    source.write_text(PRELOADED, encoding="utf-8")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    told = {
        "LD_PRELOAD": str(library),
        "LD_LIBRARY_PATH": str(cudart().path.parent),
        "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1",
    }
    command = [sys.executable, "-c", COMPILES, str(tmp_path), *(["asks"] if asks else [])]
    ended = subprocess.run(command, env={**os.environ, **told}, capture_output=True, text=True)
    assert ended.stdout == "compiled\n", ended.stderr
    # That it would be seen is what the other case is for.
    assert ("asked: " in ended.stderr) == asks, ended.stderr


def test_a_gpu_that_is_known_is_not_asked_for(tmp_path: Path) -> None:
    context = BuildContext(tmp_path / "cache", tmp_path / "work", gpu=("Some GPU", 90))
    assert device_name("sm_90a", context) == "Some GPU"
    assert device_name("sm_80", context) is None
