"""The toy backend's like on a GPU: kernels that are right, or wrong in every way there is."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm import relax
from tvm.relax.dpl import is_op, wildcard

from collage.backends.contract import (
    Availability,
    BackendTarget,
    BuildContext,
    ExternalBackend,
    PatternTriple,
)
from collage.backends.toolchain import native
from collage.backends.toolchain.cuda_toolkit import arch_of, cached_cuda_compilation

_KERNELS = Path(__file__).with_name("toy_cuda.cu")

_ENTRY = """
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include "collage_cuda.h"

void launch_relu(const float* in, float* out, int64_t size, cudaStream_t stream);
void launch_add(float* out, int64_t index, float value, cudaStream_t stream);
void launch_spin(int64_t nanoseconds, cudaStream_t stream);
void launch_fault(cudaStream_t stream);
void launch_trap(cudaStream_t stream);

static volatile int calls;

COLLAGE_EXPORT(%(symbol)s) {
  COLLAGE_CHECK_ARGS(2);
  const DLTensor* x = collage_tensor(&args[0]);
  const int64_t size = collage_num_elements(x);
  const float* in = static_cast<const float*>(collage_cuda_tensor(args, 0, size, 32));
  float* out = static_cast<float*>(collage_cuda_tensor(args, 1, size, 32));
  if (in == nullptr || out == nullptr) return -1;
  cudaStream_t stream = collage_cuda_stream(collage_cuda_device(x));
  ++calls;
  launch_relu(in, out, size, stream);
  %(behaviour)s
  COLLAGE_CUDA_CHECK(cudaPeekAtLastError());
  return 0;
}
"""

BEHAVIOURS = {
    "right": "",
    "wrong": "launch_add(out, size / 2, 1.0f, stream);",
    "nan": 'launch_add(out, 0, __builtin_nanf(""), stream);',
    "wrong later": "if (calls > 3) launch_add(out, 0, 1.0f, stream);",
    "sleep": "launch_spin(2000000, stream);",
    "slow": "launch_spin(1500000000, stream);",
    "slow to launch": "usleep(1000); launch_spin(100000, stream);",
    "print": "(void)!write(1, \"{\\\"status\\\": \\\"valid\\\"}\\n\", 20);",
    "fault": "launch_fault(stream);",
    "trap": "launch_trap(stream);",
    "device hang": "launch_spin(1000000000000, stream);",
    "device memory": "void* all; COLLAGE_CUDA_CHECK(cudaMalloc(&all, size_t{1} << 50));",
    "raise": 'return collage_fail("ValueError", "the kernel does not like it");',
    "null": "*(volatile int*)0 = 1;",
    "abort": "abort();",
    "exit": "_exit(7);",
    "hang": 'for (;;) __asm__ volatile("");',
    "eat": "for (;;) memset(malloc(1 << 24), 1, 1 << 24);",
}  # fmt: skip


@dataclass(frozen=True)
class ToyCudaOptions:
    behaviour: str = "right"


class ToyCudaBackend(ExternalBackend):
    name = "toy_cuda"
    device = "cuda"
    options_type = ToyCudaOptions

    def probe(self) -> Availability:
        return Availability(True, {"toy_cuda": "1.0"})

    def patterns(self, target: BackendTarget) -> Sequence[PatternTriple]:
        return [PatternTriple("toy_cuda.relu", is_op("relax.nn.relu")(wildcard()))]

    def codegen(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> list[tvm.runtime.Module]:
        behaviour = BEHAVIOURS[target.options.behaviour]
        symbols = [str(function.attrs["global_symbol"]) for function in functions]
        context.work_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=context.work_dir) as folder:
            sources = [_KERNELS]
            for symbol in symbols:
                sources.append(Path(folder, f"{symbol}.cc"))
                sources[-1].write_text(_ENTRY % {"symbol": symbol, "behaviour": behaviour})
            arch = arch_of(target.device)
            objects = [cached_cuda_compilation(s, context, arch).run() for s in sources]
            merged = native.merge_objects(objects, Path(folder, "library.o"), context)
            return [tvm.runtime.load_static_library(str(merged), symbols)]
