// The exponential function in vectors of AVX-512.
#pragma once

#include "lanes.h"

#ifdef COLLAGE_AVX512
namespace collage_onednn {

// To a unit in the last place or so (the polynomial is that of Cephes' expf); 0 below -104, as
// rounded, infinity beyond 88.7 if `unbounded`, and NaN of NaN.
template <bool unbounded = false>
COLLAGE_AVX512 inline __m512 exponential(__m512 x) {
  // The second operand is what comes out where one is NaN.
  x = _mm512_max_ps(_mm512_set1_ps(-104.f), x);
  if (unbounded) x = _mm512_min_ps(_mm512_set1_ps(89.f), x);
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  // The logarithm of 2 in two parts, the first of which has few digits.
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.9875691500e-4f);
  for (float next : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                     5.0000001201e-1f})
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(next));
  p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r);
  return _mm512_scalef_ps(_mm512_add_ps(p, _mm512_set1_ps(1.f)), n);
}

}  // namespace collage_onednn
#endif
