"""The toy backend, which also wants to try things out before it compiles."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax

from collage.backends.contract import BackendTarget, BuildContext, TunesOneByOne
from collage.backends.contract.errors import CodegenError
from collage.backends.storage import TuningStore
from collage.testing.fixtures.misbehaving import MisbehavingOptions
from tests.cost_tests.toy_backend import ToyBackend


@dataclass(frozen=True)
class ToyTunableOptions(MisbehavingOptions):
    tuning: str = "right"


def wait_until_built(log: TuningStore) -> None:
    """Wait for another process to have built something."""
    for _ in range(600):
        log.refresh()
        if log.find({"was built": True}, {"name": "a toy"}) is not None:
            return
        time.sleep(0.1)
    raise CodegenError("nothing is built while others are tuned")


def _process() -> dict[str, int]:
    """This one, and by how much it leaves the cores to others."""
    return {"pid": os.getpid(), "nice": os.getpriority(os.PRIO_PROCESS, 0)}


class ToyTunableBackend(ToyBackend, TunesOneByOne):
    """Remembers which shapes each process tuned, and in which process each was built."""

    name = "toy_tunable"
    options_type = ToyTunableOptions

    def tune(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> None:
        log = TuningStore.of(self.name, 1, context)
        shapes = [list(map(int, f.params[0].ty.shape)) for f in functions]
        log.append({"tuned": shapes}, {"name": "a toy"}, _process())
        if target.options.tuning == "slow":
            time.sleep(4)
        if target.options.tuning == "hang":
            time.sleep(1000)
        if target.options.tuning == "die":
            os.abort()
        if target.options.tuning == "refuse":
            raise CodegenError("the toy will not be tuned")

    def tune_each(
        self,
        functions: Sequence[relax.Function],
        target: BackendTarget,
        context: BuildContext,
        settled: Callable[[int], None],
    ) -> None:
        if target.options.tuning == "one by one":
            first, *others = range(len(functions))
            settled(first)
            wait_until_built(TuningStore.of(self.name, 1, context))
            for index in others:
                settled(index)
        else:
            self.tune(functions, target, context)

    def codegen(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> list[tvm.runtime.Module]:
        log = TuningStore.of(self.name, 1, context)
        log.append({"was built": True}, {"name": "a toy"}, _process())
        log.append({"built": time.time_ns()}, {"name": "a toy"}, _process())
        return super().codegen(functions, target, context)
