// Sixteen numbers side by side, of AVX-512: asked for where a function says so.
#pragma once

#include <cstdint>

#include "../linkage.h"

#ifdef COLLAGE_X86
#include <immintrin.h>
// Compilers since GCC 10 and Clang 9 know AVX512_BF16, and use what is asked for by name alone of it:
// functions that round to bfloat16, which run where there is that. As functions of another target they
// would be called for each vector, not inlined.
#if !defined(COLLAGE_NO_AVX512_BF16) && (defined(__clang__) ? __clang_major__ >= 9 : __GNUC__ >= 10)
#define COLLAGE_AVX512_BF16
#define COLLAGE_AVX512 __attribute__((target("avx512f,avx512bw,avx512bf16")))
#else
#define COLLAGE_AVX512 __attribute__((target("avx512f,avx512bw")))
#endif

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
// To bfloat16, the nearest, ties to even; what is no number stays none.
#ifdef COLLAGE_AVX512_BF16
COLLAGE_AVX512 inline __m256i halves_of(Lanes a) { return (__m256i)_mm512_cvtneps_pbh(a); }

// Those of `a` and of `b` in turns.
COLLAGE_AVX512 inline __m512i halves_in_turns(Lanes a, Lanes b) {
  const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i high = _mm512_slli_epi32(_mm512_add_epi32(low, _mm512_set1_epi32(16)), 16);
  return _mm512_permutexvar_epi16(_mm512_or_si512(low, high), (__m512i)_mm512_cvtne2ps_pbh(b, a));
}
#else
// In the upper half of each number.
COLLAGE_AVX512 inline __m512i rounded_bits(Lanes a) {
  const __m512i bits = _mm512_castps_si512(a), one = _mm512_set1_epi32(1);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
  const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  return _mm512_mask_or_epi32(up, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), bits,
                              _mm512_set1_epi32(0x400000));
}

COLLAGE_AVX512 inline __m256i halves_of(Lanes a) {
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded_bits(a), 16));
}

// Those of `a` and of `b` in turns.
COLLAGE_AVX512 inline __m512i halves_in_turns(Lanes a, Lanes b) {
  const __m512i upper = _mm512_and_si512(rounded_bits(b), _mm512_set1_epi32(-1 << 16));
  return _mm512_or_si512(upper, _mm512_srli_epi32(rounded_bits(a), 16));
}
#endif

COLLAGE_AVX512 inline float largest_lane(Lanes a) { return _mm512_reduce_max_ps(a); }
COLLAGE_AVX512 inline float sum_of_lanes(Lanes a) { return _mm512_reduce_add_ps(a); }

}  // namespace avx512
}  // namespace collage_onednn
#endif
