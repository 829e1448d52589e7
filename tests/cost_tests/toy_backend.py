"""The misbehaving backend, which as ``build`` says may also tune, or need a GPU that is full."""

from __future__ import annotations

import time
from collections.abc import Sequence

import tvm
from tvm import relax

from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.errors import CodegenError
from collage.backends.storage import TuningStore
from collage.testing.fixtures.misbehaving import MisbehavingBackend


class ToyBackend(MisbehavingBackend):
    name = "toy"

    def codegen(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> list[tvm.runtime.Module]:
        if target.options.build == "tune":
            log = TuningStore.of("toy", 1, context)
            if log.find({"kernel": "relu"}, {}) is None and log.replay:
                raise log.miss("relu", 1)
            if log.find({"kernel": "relu"}, {}) is None:
                log.append({"kernel": "relu"}, {"name": "a toy"}, {"unroll": 4})
        if target.options.build == "library fails":
            raise CodegenError("cudnnCreate: CUDNN_STATUS_INTERNAL_ERROR", value="cudnn")
        if target.options.build == "room for one":
            context.cache_dir.mkdir(parents=True, exist_ok=True)
            taken = context.cache_dir / "taken"
            try:
                taken.touch(exist_ok=False)
            except FileExistsError as err:
                raise CodegenError("cudaStreamCreate: out of memory", value="cublas") from err
            time.sleep(0.5)
            taken.unlink()
        return super().codegen(functions, target, context)
