// Sixteen numbers side by side, of AVX-512: asked for where a function says so.
#pragma once

#include <cstdint>

#include "../linkage.h"

#ifdef COLLAGE_X86
#include <immintrin.h>
// Of AVX512_BF16 compilers use what is asked for by name alone: functions that round to bfloat16, which
// run where there is that. As another target they would be called for each vector, not inlined.
#define COLLAGE_AVX512 __attribute__((target("avx512f,avx512bw,avx512bf16")))

namespace collage_onednn {

COLLAGE_AVX512 inline __mmask16 lanes_from(int64_t left) {
  return left < 16 ? static_cast<__mmask16>((1u << left) - 1) : static_cast<__mmask16>(0xffff);
}

namespace avx512 {

using Lanes = __m512;
using Which = __mmask16;
constexpr int64_t kLanes = 16;

COLLAGE_AVX512 inline Lanes all(float x) { return _mm512_set1_ps(x); }
COLLAGE_AVX512 inline Lanes add(Lanes a, Lanes b) { return _mm512_add_ps(a, b); }
COLLAGE_AVX512 inline Lanes sub(Lanes a, Lanes b) { return _mm512_sub_ps(a, b); }
COLLAGE_AVX512 inline Lanes mul(Lanes a, Lanes b) { return _mm512_mul_ps(a, b); }
COLLAGE_AVX512 inline Lanes div(Lanes a, Lanes b) { return _mm512_div_ps(a, b); }
COLLAGE_AVX512 inline Lanes size(Lanes a) { return _mm512_abs_ps(a); }
// a b + c, and c - a b.
COLLAGE_AVX512 inline Lanes fma(Lanes a, Lanes b, Lanes c) { return _mm512_fmadd_ps(a, b, c); }
COLLAGE_AVX512 inline Lanes fnma(Lanes a, Lanes b, Lanes c) { return _mm512_fnmadd_ps(a, b, c); }
// The second operand is what comes out where one is NaN.
COLLAGE_AVX512 inline Lanes larger(Lanes a, Lanes b) { return _mm512_max_ps(a, b); }
COLLAGE_AVX512 inline Lanes smaller(Lanes a, Lanes b) { return _mm512_min_ps(a, b); }
COLLAGE_AVX512 inline Which above(Lanes a, Lanes b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}
COLLAGE_AVX512 inline Which same(Lanes a, Lanes b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
COLLAGE_AVX512 inline Lanes choose(Which which, Lanes a, Lanes b) {
  return _mm512_mask_mov_ps(b, which, a);
}
COLLAGE_AVX512 inline Lanes nearest_whole(Lanes x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// Times two to a whole power between -151 and 129.
COLLAGE_AVX512 inline Lanes scaled(Lanes x, Lanes power) { return _mm512_scalef_ps(x, power); }

// A positive number as one from 1 to 2 times a power of two; NaN of one below zero.
COLLAGE_AVX512 inline Lanes mantissa(Lanes x) {
  return _mm512_getmant_ps(x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_nan);
}
COLLAGE_AVX512 inline Lanes exponent(Lanes x) { return _mm512_getexp_ps(x); }

COLLAGE_AVX512 inline Lanes load(const float* x) { return _mm512_loadu_ps(x); }
COLLAGE_AVX512 inline void store(float* y, Lanes a) { _mm512_storeu_ps(y, a); }
COLLAGE_AVX512 inline Lanes load_first(const float* x, int64_t count, Lanes rest) {
  return _mm512_mask_loadu_ps(rest, lanes_from(count), x);
}
COLLAGE_AVX512 inline void store_first(float* y, int64_t count, Lanes a) {
  _mm512_mask_storeu_ps(y, lanes_from(count), a);
}
COLLAGE_AVX512 inline Lanes kept(Lanes a, int64_t count) {
  return _mm512_maskz_mov_ps(lanes_from(count), a);
}
COLLAGE_AVX512 inline float largest_lane(Lanes a) { return _mm512_reduce_max_ps(a); }
COLLAGE_AVX512 inline float sum_of_lanes(Lanes a) { return _mm512_reduce_add_ps(a); }

}  // namespace avx512
}  // namespace collage_onednn
#endif
