"""The misbehaving backend, which may also misbehave while it compiles."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm import relax

from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.errors import CodegenError
from collage.backends.storage import TuningStore
from collage.testing.misbehaving import MisbehavingBackend, MisbehavingOptions


@dataclass(frozen=True)
class ToyOptions(MisbehavingOptions):
    build: str = "normal"


class ToyBackend(MisbehavingBackend):
    name = "toy"
    options_type = ToyOptions

    def codegen(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> list[tvm.runtime.Module]:
        if target.options.build == "hang":
            time.sleep(1000)
        if target.options.build == "die":
            os.abort()
        if target.options.build == "refuse":
            raise CodegenError("toy does not want to")
        if target.options.build == "tune":
            log = TuningStore.of("toy", 1, context)
            if log.find({"kernel": "relu"}, {}) is None and log.replay:
                raise log.miss("relu", 1)
            if log.find({"kernel": "relu"}, {}) is None:
                log.append({"kernel": "relu"}, {"name": "a toy"}, {"unroll": 4})
        return super().codegen(functions, target, context)
