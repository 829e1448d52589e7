// Numbers rounded to bytes, in vectors of AVX-512: see vectors.h.

COLLAGE_AVX512 void range_of(const float* x, int64_t count, float* low, float* high) {
  __m512 least = _mm512_setzero_ps(), most = least;
  for (int64_t i = 0; i < count; i += 16) {
    const __m512 v = _mm512_maskz_loadu_ps(lanes_from(count - i), x + i);
    least = _mm512_min_ps(least, v);
    most = _mm512_max_ps(most, v);
  }
  *low = _mm512_reduce_min_ps(least);
  *high = _mm512_reduce_max_ps(most);
}

COLLAGE_AVX512 int32_t to_bytes(const float* x, int64_t count, float step, float point,
                                uint8_t* bytes) {
  const __m512 steps = _mm512_set1_ps(step), points = _mm512_set1_ps(point);
  const __m512 zero = _mm512_setzero_ps(), limit = _mm512_set1_ps(255.f);
  __m512i sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < count; i += 16) {
    const __mmask16 lanes = lanes_from(count - i);
    __m512 v = _mm512_div_ps(_mm512_maskz_loadu_ps(lanes, x + i), steps);
    v = _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    v = _mm512_min_ps(_mm512_max_ps(_mm512_add_ps(v, points), zero), limit);
    const __m512i whole = _mm512_cvtps_epi32(v);
    _mm512_mask_cvtepi32_storeu_epi8(bytes + i, lanes, whole);
    sum = _mm512_mask_add_epi32(sum, lanes, sum, whole);
  }
  return _mm512_reduce_add_epi32(sum);
}
