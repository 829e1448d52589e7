// Results of chains in bfloat16, in vectors of AVX-512: see vectors.h.

struct Rounded {
  // To the nearest, ties to even.
  COLLAGE_AVX512 static void first(const Chain& chain, int64_t place, int64_t count, Lanes a) {
    const __m512i bits = _mm512_castps_si512(a), one = _mm512_set1_epi32(1);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
    __m512i high = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    // What is no number stays none, whatever its digits are.
    high = _mm512_mask_or_epi32(high, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), bits,
                                _mm512_set1_epi32(0x400000));
    _mm512_mask_cvtepi32_storeu_epi16(static_cast<uint16_t*>(chain.result) + place,
                                      lanes_from(count), _mm512_srli_epi32(high, 16));
  }
};

void rounded_rows(const Chain& chain, int64_t first, int64_t last) {
  chained<Rounded>(chain, first, last);
}
