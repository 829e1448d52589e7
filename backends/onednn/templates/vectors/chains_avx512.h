// Results of chains in bfloat16, in vectors of AVX-512: see vectors.h.

struct Rounded {
  COLLAGE_AVX512 static void first(const Chain& chain, int64_t place, int64_t count, Lanes a) {
    const __m256i halves = (__m256i)_mm512_cvtneps_pbh(a);
    _mm512_mask_storeu_epi16(static_cast<uint16_t*>(chain.result) + place, lanes_from(count),
                             _mm512_castsi256_si512(halves));
  }
};

void rounded_rows(const Chain& chain, int64_t first, int64_t last) {
  chained<Rounded>(chain, first, last);
}
