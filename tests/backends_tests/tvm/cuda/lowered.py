"""Modules lowered for a GPU, and the kernels in them."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

from benchmarks.gpu.cases.compiling import cuda_target
from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.registry import get_backend


def lower(mod: tvm.IRModule, context: BuildContext, **options: Any) -> tvm.IRModule:
    backend = get_backend("tvm")
    target = BackendTarget("tvm", cuda_target(), backend.parse_options(options))
    return backend.lower(mod, target, context)


def kernels(mod: tvm.IRModule) -> dict[str, tirx.PrimFunc]:
    return {
        str(gv.name_hint): func
        for gv, func in mod.functions.items()
        if isinstance(func, tirx.PrimFunc)
    }
