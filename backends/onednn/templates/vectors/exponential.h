// The exponential function in vectors of AVX-512.
#pragma once

#include "lanes.h"

#ifdef COLLAGE_AVX512
namespace collage_onednn {

// x as n times the logarithm of 2 and a rest between its halves.
struct Halvings {
  __m512 n, rest;
};

// Down to -104, where the exponential function is 0 as rounded, and up to 89, where it is infinite,
// if `unbounded`; NaN of NaN.
template <bool unbounded>
COLLAGE_AVX512 inline Halvings halvings(__m512 x) {
  // The second operand is what comes out where one is NaN.
  x = _mm512_max_ps(_mm512_set1_ps(-104.f), x);
  if (unbounded) x = _mm512_min_ps(_mm512_set1_ps(89.f), x);
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  // The logarithm of 2 in two parts, the first of which has few digits.
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  return {n, _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r)};
}

// exp(r) - 1 of a rest, by the polynomial of Cephes' expf.
COLLAGE_AVX512 inline __m512 power_of_rest_less_one(__m512 r) {
  __m512 p = _mm512_set1_ps(1.9875691500e-4f);
  for (float next : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                     5.0000001201e-1f})
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(next));
  return _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r);
}

// To a unit in the last place or so.
template <bool unbounded = false>
COLLAGE_AVX512 inline __m512 exponential(__m512 x) {
  const Halvings of = halvings<unbounded>(x);
  const __m512 power = _mm512_add_ps(power_of_rest_less_one(of.rest), _mm512_set1_ps(1.f));
  return _mm512_scalef_ps(power, of.n);
}

// exp(x) - 1 with all of its digits near 0, too.
COLLAGE_AVX512 inline __m512 exponential_less_one(__m512 x) {
  const Halvings of = halvings<true>(x);
  const __m512 one = _mm512_set1_ps(1.f);
  return _mm512_add_ps(_mm512_scalef_ps(power_of_rest_less_one(of.rest), of.n),
                       _mm512_sub_ps(_mm512_scalef_ps(one, of.n), one));
}

}  // namespace collage_onednn
#endif
