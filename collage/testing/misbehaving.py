"""A backend of plain C whose kernels do as they are told: right, or wrong in every way there is.

Its code generator does, too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op
from tvm.relax.dpl import is_op, wildcard

from collage.backends.compile import compile_module
from collage.backends.contract import (
    Availability,
    BackendTarget,
    BuildContext,
    ExternalBackend,
    PatternTriple,
)
from collage.backends.contract.errors import CodegenError
from collage.backends.contract.registry import backend_names, register_backend
from collage.backends.toolchain import native
from collage.cost.measure.runner import RunJob
from collage.cost.reference import Sample
from collage.cost.workload import Workload
from collage.testing.backend_cases import fuse
from collage.testing.graphs import graph

_KERNEL = """
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <time.h>
#include "collage_ffi.h"

static volatile int calls;
__attribute__((weak)) volatile int64_t last;  // One for all kernels of a library.

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
    "wrong beyond 50": "for (int64_t i = 0; i < size; ++i) if (in[i] > 50.0f) out[i] = 50.0f;",
    "wrong beside others": "if (last && last != size) out[0] += 100.0f; last = size;",
}  # fmt: skip
"""What a kernel may do besides computing ``relu``, in C."""


@dataclass(frozen=True)
class MisbehavingOptions:
    """What the kernels and the code generator do.

    Attributes
    ----------
    behaviour : str
        A key of :data:`BEHAVIOURS`.
    build : str
        What the code generator does before it compiles: it may ``refuse``, ``die`` or ``hang``.
    """

    behaviour: str = "right"
    build: str = "normal"


class MisbehavingBackend(ExternalBackend):
    """Takes ``relax.nn.relu`` and does with it what the target's attribute says."""

    name = "misbehaving"
    options_type: ClassVar[type] = MisbehavingOptions

    def probe(self) -> Availability:
        return Availability(True, {self.name: "1.0"})

    def patterns(self, target: BackendTarget) -> Sequence[PatternTriple]:
        return [PatternTriple(f"{self.name}.relu", is_op("relax.nn.relu")(wildcard()))]

    def codegen(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> list[tvm.runtime.Module]:
        """One static library per function, whose kernel behaves as the target says.

        Parameters
        ----------
        functions : sequence of relax.Function
            Each a ``relu``.
        target : BackendTarget
            Names the behaviour.
        context : BuildContext
            Where and how to build.

        Raises
        ------
        CodegenError
            When it is told to.
        """
        if target.options.build == "hang":
            time.sleep(1000)
        if target.options.build == "die":
            os.abort()
        if target.options.build == "refuse":
            raise CodegenError(f"{self.name} does not want to")
        behaviour = BEHAVIOURS[target.options.behaviour]
        libraries = []
        for function in functions:
            symbol = str(function.attrs["global_symbol"])
            source = _KERNEL % {"symbol": symbol, "behaviour": behaviour}
            libraries.append(native.static_library(source, [symbol], context, suffix=".c"))
        return libraries


def misbehaving_target(behaviour: str = "right", build: str = "normal") -> BackendTarget:
    """A target of the misbehaving backend, which this process knows from then on.

    Parameters
    ----------
    behaviour, build : str
        As :class:`MisbehavingOptions` has them.
    """
    if MisbehavingBackend.name not in backend_names():
        register_backend(MisbehavingBackend())
    options = MisbehavingBackend().parse_options({"behaviour": behaviour, "build": build})
    return BackendTarget(MisbehavingBackend.name, tvm.target.Target("llvm"), options)


def misbehaving_workload(*shape: int) -> Workload:
    """What the misbehaving backend computes, of some shape.

    Parameters
    ----------
    shape : int
        Of the input.
    """
    target = misbehaving_target()
    mod = fuse(MisbehavingBackend(), target, graph([shape], lambda _, x: op.nn.relu(x)))
    return Workload.from_module(mod)


def misbehaving_job(behaviour: str, folder: Path, context: BuildContext) -> RunJob:
    """A compiled library with its test data, whose kernel behaves as named.

    Parameters
    ----------
    behaviour : str
        A key of :data:`BEHAVIOURS`.
    folder : Path
        For the library and its data.
    context : BuildContext
        How to compile it.
    """
    target = misbehaving_target(behaviour)
    backend = MisbehavingBackend()
    mod = fuse(backend, target, graph([(4, 1000)], lambda _, x: op.nn.relu(x)))
    compile_module(mod, [target], folder / "model.so", context)
    x = np.random.default_rng(0).standard_normal((4, 1000), np.float32)
    Sample.of([x], [np.maximum(x, 0.0)]).save(folder)
    return RunJob.in_folder(folder)
