// Eight numbers side by side, of AVX2 and FMA: asked for where a function says so.
#pragma once

#include <cstdint>

#include "../linkage.h"

#ifdef COLLAGE_X86
#include <immintrin.h>
#define COLLAGE_AVX2 __attribute__((target("avx2,fma")))

namespace collage_onednn {
namespace avx2 {

using Lanes = __m256;
using Which = __m256;
constexpr int64_t kLanes = 8;

COLLAGE_AVX2 inline Lanes all(float x) { return _mm256_set1_ps(x); }
COLLAGE_AVX2 inline Lanes add(Lanes a, Lanes b) { return _mm256_add_ps(a, b); }
COLLAGE_AVX2 inline Lanes sub(Lanes a, Lanes b) { return _mm256_sub_ps(a, b); }
COLLAGE_AVX2 inline Lanes mul(Lanes a, Lanes b) { return _mm256_mul_ps(a, b); }
COLLAGE_AVX2 inline Lanes div(Lanes a, Lanes b) { return _mm256_div_ps(a, b); }
COLLAGE_AVX2 inline Lanes size(Lanes a) { return _mm256_andnot_ps(all(-0.f), a); }
// a b + c, and c - a b.
COLLAGE_AVX2 inline Lanes fma(Lanes a, Lanes b, Lanes c) { return _mm256_fmadd_ps(a, b, c); }
COLLAGE_AVX2 inline Lanes fnma(Lanes a, Lanes b, Lanes c) { return _mm256_fnmadd_ps(a, b, c); }
// The second operand is what comes out where one is NaN.
COLLAGE_AVX2 inline Lanes larger(Lanes a, Lanes b) { return _mm256_max_ps(a, b); }
COLLAGE_AVX2 inline Lanes smaller(Lanes a, Lanes b) { return _mm256_min_ps(a, b); }
COLLAGE_AVX2 inline Which above(Lanes a, Lanes b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
COLLAGE_AVX2 inline Which same(Lanes a, Lanes b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
COLLAGE_AVX2 inline Lanes choose(Which which, Lanes a, Lanes b) {
  return _mm256_blendv_ps(b, a, which);
}
COLLAGE_AVX2 inline Lanes nearest_whole(Lanes x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

COLLAGE_AVX2 inline Lanes power_of_two(__m256i n) {
  const __m256i biased = _mm256_add_epi32(n, _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}

// Times two to a whole power between -151 and 129: in two halves, for one number does not hold it.
COLLAGE_AVX2 inline Lanes scaled(Lanes x, Lanes power) {
  const __m256i n = _mm256_cvtps_epi32(power), half = _mm256_srai_epi32(n, 1);
  return mul(mul(x, power_of_two(half)), power_of_two(_mm256_sub_epi32(n, half)));
}

// What makes a positive number an ordinary one: 2^24 where it has lost digits, else 1.
COLLAGE_AVX2 inline Lanes without_denormals(Lanes x) {
  return choose(above(all(1.17549435e-38f), x), all(16777216.f), all(1.f));
}

// A positive number as one from 1 to 2 times a power of two; NaN of one below zero.
COLLAGE_AVX2 inline Lanes mantissa(Lanes x) {
  const __m256i digits = _mm256_castps_si256(mul(x, without_denormals(x)));
  const __m256i bits = _mm256_and_si256(digits, _mm256_set1_epi32(0x7fffff));
  const Lanes m = _mm256_castsi256_ps(_mm256_or_si256(bits, _mm256_set1_epi32(0x3f800000)));
  // What is no number, or is below zero, is not at least zero.
  const Which none = _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_NGE_UQ);
  return choose(none, all(__builtin_nanf("")), m);
}
COLLAGE_AVX2 inline Lanes exponent(Lanes x) {
  const Lanes factor = without_denormals(x);
  const __m256i bits = _mm256_srli_epi32(_mm256_castps_si256(mul(x, factor)), 23);
  const __m256i more = _mm256_srli_epi32(_mm256_castps_si256(factor), 23);
  return _mm256_cvtepi32_ps(_mm256_sub_epi32(bits, more));
}

// Of `count` numbers from the first on, which may be more than there are lanes.
COLLAGE_AVX2 inline __m256i lanes_from(int64_t count) {
  const int least = count < kLanes ? static_cast<int>(count) : static_cast<int>(kLanes);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(least), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

COLLAGE_AVX2 inline Lanes load(const float* x) { return _mm256_loadu_ps(x); }
COLLAGE_AVX2 inline void store(float* y, Lanes a) { _mm256_storeu_ps(y, a); }
COLLAGE_AVX2 inline Lanes load_first(const float* x, int64_t count, Lanes rest) {
  const __m256i lanes = lanes_from(count);
  return choose(_mm256_castsi256_ps(lanes), _mm256_maskload_ps(x, lanes), rest);
}
COLLAGE_AVX2 inline void store_first(float* y, int64_t count, Lanes a) {
  _mm256_maskstore_ps(y, lanes_from(count), a);
}
COLLAGE_AVX2 inline Lanes kept(Lanes a, int64_t count) {
  return _mm256_and_ps(_mm256_castsi256_ps(lanes_from(count)), a);
}
COLLAGE_AVX2 inline float largest_lane(Lanes a) {
  const __m128 half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 two = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
COLLAGE_AVX2 inline float sum_of_lanes(Lanes a) {
  const __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 two = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

}  // namespace avx2
}  // namespace collage_onednn
#endif
