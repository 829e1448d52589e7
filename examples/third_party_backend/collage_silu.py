"""A backend of one's own in one file: SiLU, x * sigmoid(x), as one vectorized C++ loop."""

from dataclasses import dataclass
from math import prod

from tvm.relax.dpl import wildcard

from collage.backends.contract import Availability, ExternalBackend, Match, PatternTriple, Verdict
from collage.backends.relax.patterns import ACTIVATIONS
from collage.backends.relax.static_shape import tensor_dtype, tensor_shape
from collage.backends.toolchain import native

KERNEL = """
#include <collage_ffi.h>
#include <cmath>
__attribute__((target_clones("avx512f", "avx2", "default")))
static void silu(const float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = x[i] / (1.0f + std::exp(-x[i]));
}
"""
ENTRY = """
COLLAGE_EXPORT(%(symbol)s) {
  const long n = %(elements)d, block = 4096;
  COLLAGE_CHECK_ARGS(2);
  const float* x = collage_float32(args, 0, n);
  float* y = collage_float32(args, 1, n);
  if (!x || !y) return -1;
  #pragma omp parallel for num_threads(collage_num_threads())
  for (long i = 0; i < n; i += block) silu(x + i, y + i, n - i < block ? n - i : block);
  return 0;
}
"""


@dataclass(frozen=True)
class SiluOptions:
    min_elements: int = 1024  # set by users as {"kind": "silu", "min_elements": 1}


class SiluBackend(ExternalBackend):
    name, options_type = "silu", SiluOptions

    def probe(self):
        return Availability(True, versions={"silu": "1.0"})

    def patterns(self, target):
        def fits(match: Match) -> Verdict:
            dtype, elements = tensor_dtype(match.root), prod(tensor_shape(match.root) or [0])
            if dtype != "float32" or elements < target.options.min_elements:
                return Verdict.no(f"{elements} elements of {dtype}: too few, or not float32")
            return Verdict.yes()

        return [PatternTriple("silu.silu", ACTIVATIONS["silu"](wildcard()), fits)]

    def codegen(self, functions, target, context):
        sizes = {str(f.attrs["global_symbol"]): prod(tensor_shape(f.body)) for f in functions}
        source = KERNEL + "".join(ENTRY % {"symbol": s, "elements": n} for s, n in sizes.items())
        return [native.static_library(source, list(sizes), context, flags=["-ffast-math"])]
