// Results of chains in bfloat16, in vectors of AVX-512: see vectors.h.

struct Halves {
  template <bool whole>
  COLLAGE_AVX512 static Lanes part(const Chain& chain, int64_t place, int64_t left) {
    const auto* from = static_cast<const uint16_t*>(chain.x) + place;
    const __m256i halves =
        whole ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))
              : _mm512_castsi512_si256(_mm512_maskz_loadu_epi16(lanes_from(left), from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
};

struct Rounded {
  template <bool whole>
  COLLAGE_AVX512 static void part(const Chain& chain, int64_t place, int64_t left, Lanes a) {
    auto* to = static_cast<uint16_t*>(chain.result) + place;
    const __m256i halves = halves_of(a);
    if (whole) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves);
    else _mm512_mask_storeu_epi16(to, lanes_from(left), _mm512_castsi256_si512(halves));
  }
};

void rounded_rows(const Chain& chain, int64_t first, int64_t last) {
  if (chain.halves) chained<Halves, Rounded>(chain, first, last);
  else chained<Floats, Rounded>(chain, first, last);
}
