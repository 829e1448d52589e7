// Vectors of AVX-512, for loops that GCC makes no vectors of: asked for where a function says so.
#pragma once

#include <cstdint>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define COLLAGE_AVX512 __attribute__((target("avx512f,avx512bw")))

namespace collage_onednn {

COLLAGE_AVX512 inline __mmask16 lanes_from(int64_t left) {
  return left < 16 ? static_cast<__mmask16>((1u << left) - 1) : static_cast<__mmask16>(0xffff);
}

}  // namespace collage_onednn
#endif
