"""The misbehaving backend, which may also tune: its option ``build`` is ``tune`` then."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax

from collage.backends.contract import BackendTarget, BuildContext
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
        return super().codegen(functions, target, context)
