"""A backend of plain C whose kernels do as they are told: right, or wrong in every way there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.relax.dpl import is_op, wildcard

from collage.backends.contract.base import (
    Availability,
    BackendTarget,
    BuildContext,
    ExternalBackend,
    PatternTriple,
)
from collage.backends.contract.errors import CodegenError
from collage.backends.storage.tuning_store import TuningStore
from collage.backends.toolchain import native

_KERNEL = """
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <time.h>
#include "collage_ffi.h"

static volatile int calls;

COLLAGE_EXPORT(%(symbol)s) {
  COLLAGE_CHECK_ARGS(2);
  const DLTensor* x = collage_tensor(&args[0]);
  const DLTensor* y = collage_tensor(&args[1]);
  const float* in = (const float*)collage_data(x);
  float* out = (float*)collage_data(y);
  int64_t size = collage_num_elements(x);
  ++calls;
  for (int64_t i = 0; i < size; ++i) out[i] = in[i] > 0.0f ? in[i] : 0.0f;
  %(behaviour)s
  return 0;
}
"""

BEHAVIOURS = {
    "right": "",
    "wrong": "out[size / 2] += 1.0f;",
    "nan": "out[0] = NAN;",
    "wrong later": "if (calls > 3) out[0] += 1.0f;",
    "null": "*(volatile int*)0 = 1;",
    "abort": "abort();",
    "abort later": "if (calls > 3) abort();",
    "exit": "_exit(7);",
    "hang": "for (;;) __asm__ volatile(\"\");",
    "eat": "for (;;) memset(malloc(1 << 24), 1, 1 << 24);",
    "greedy": "volatile char* p = malloc((size_t)1 << 40); p[0] = 1;",
    "raise": "return collage_fail(\"ValueError\", \"the kernel does not like it\");",
    "corrupt": "if (calls == 1) for (int64_t i = 0; i < (1 << 20); ++i) out[i] = 1.0f;",
    "slow": "usleep(1500000);",
    "print": "write(1, \"{\\\"status\\\": \\\"valid\\\"}\\n\", 20);",
    "does not compile": "this is no C;",
    "sleep": "usleep(2000);",
}  # fmt: skip


@dataclass(frozen=True)
class ToyOptions:
    behaviour: str = "right"
    build: str = "normal"


class ToyBackend(ExternalBackend):
    name = "toy"
    options_type = ToyOptions

    def probe(self) -> Availability:
        return Availability(True, {"toy": "1.0"})

    def patterns(self, target: BackendTarget) -> Sequence[PatternTriple]:
        return [PatternTriple("toy.relu", is_op("relax.nn.relu")(wildcard()))]

    def codegen(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> list[tvm.runtime.Module]:
        import os
        import time

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
        libraries = []
        for function in functions:
            symbol = str(function.attrs["global_symbol"])
            source = _KERNEL % {
                "symbol": symbol,
                "behaviour": BEHAVIOURS[target.options.behaviour],
            }
            libraries.append(native.static_library(source, [symbol], context, suffix=".c"))
        return libraries
