"""What a library's modules import is linked as data, and is what TVM would have packed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.contract import BuildContext
from collage.backends.toolchain.native import num_threads_object
from collage.backends.toolchain.packed_imports import pack_imports
from collage.testing import graph


def test_the_object_is_what_tvm_packs(context: BuildContext, tmp_path: Path) -> None:
    weights = np.random.default_rng(0).random((64, 64), dtype=np.float32)
    mod = graph([(2, 64)], lambda emit, x: emit(op.matmul(x, relax.const(weights))))
    executable = tvm.compile(mod, "llvm")
    like = num_threads_object(context)
    made = Path(pack_imports(executable.mod, False, "", str(tmp_path), like=like))
    packed = tvm.get_global_func("runtime.ModulePackImportsToTensor")(executable.mod).numpy()
    assert packed.nbytes > 64 * 64 * 4
    assert made.read_bytes().count(packed.tobytes()) == 1
    library = tmp_path / "model.so"
    executable.export_library(
        str(library),
        fpack_imports=lambda *given: pack_imports(*given, like=like),
        options=["-shared", "-fPIC"],
        cc=context.cxx,
    )
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())
    x = np.random.default_rng(1).random((2, 64), dtype=np.float32)
    y = machine["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(y, x @ weights, rtol=1e-5)
