// Elementwise functions in vectors of AVX-512. The library's kernels take 1.4 to 2.5 times as long
// alone, and more behind a product, where they are applied to a few vectors at a time.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include "exponential.h"

namespace collage_onednn {

// Of `count` numbers side by side; `x` may be `y`.
using VectorFunction = void (*)(const float* x, float* y, int64_t count, float alpha);

#ifdef COLLAGE_AVX512

struct Logistic {
  COLLAGE_AVX512 static __m512 of(__m512 x, __m512) {
    const __m512 one = _mm512_set1_ps(1.f);
    const __m512 power = exponential<true>(_mm512_sub_ps(_mm512_setzero_ps(), x));
    return _mm512_div_ps(one, _mm512_add_ps(one, power));
  }
};

struct Swish {
  COLLAGE_AVX512 static __m512 of(__m512 x, __m512 alpha) {
    const __m512 power = exponential<true>(_mm512_fnmadd_ps(alpha, x, _mm512_setzero_ps()));
    return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1.f), power));
  }
};

// (1 + tanh(u)) / 2 is the logistic function of 2u.
struct GeluTanh {
  COLLAGE_AVX512 static __m512 of(__m512 x, __m512) {
    constexpr float c = -2.f * 0.797884561f;  // the root of 2 / pi
    const __m512 factor =
        _mm512_fmadd_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(c * 0.044715f), _mm512_set1_ps(c));
    const __m512 power = exponential<true>(_mm512_mul_ps(x, factor));
    return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1.f), power));
  }
};

// The error function as Eigen's: a quotient of polynomials, which is 1 to the last digit at 4.
struct GeluErf {
  COLLAGE_AVX512 static __m512 of(__m512 x, __m512) {
    __m512 z = _mm512_mul_ps(x, _mm512_set1_ps(0.707106781f));
    z = _mm512_min_ps(_mm512_set1_ps(4.f), _mm512_max_ps(_mm512_set1_ps(-4.f), z));
    const __m512 square = _mm512_mul_ps(z, z);
    __m512 p = _mm512_set1_ps(-2.72614225801306e-10f);
    for (float next : {2.77068142495902e-08f, -2.10102402082508e-06f, -5.69250639462346e-05f,
                       -7.34990630326855e-04f, -2.95459980854025e-03f, -1.60960333262415e-02f})
      p = _mm512_fmadd_ps(p, square, _mm512_set1_ps(next));
    __m512 q = _mm512_set1_ps(-1.45660718464996e-05f);
    for (float next : {-2.13374055278905e-04f, -1.68282697438203e-03f, -7.37332916720468e-03f,
                       -1.42647390514189e-02f})
      q = _mm512_fmadd_ps(q, square, _mm512_set1_ps(next));
    const __m512 erf = _mm512_div_ps(_mm512_mul_ps(z, p), q);
    const __m512 half = _mm512_mul_ps(x, _mm512_set1_ps(0.5f));
    return _mm512_fmadd_ps(half, erf, half);
  }
};

struct Exponential {
  COLLAGE_AVX512 static __m512 of(__m512 x, __m512) { return exponential<true>(x); }
};

// As Cephes' logf, a polynomial around 1: the library's is off by 6e-7 where the result is near 0.
struct Logarithm {
  COLLAGE_AVX512 static __m512 of(__m512 x, __m512) {
    const __m512 one = _mm512_set1_ps(1.f);
    __m512 m = _mm512_getmant_ps(x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_nan);
    __m512 e = _mm512_getexp_ps(x);
    const __mmask16 upper = _mm512_cmp_ps_mask(m, _mm512_set1_ps(1.41421356f), _CMP_GT_OQ);
    m = _mm512_mask_mul_ps(m, upper, m, _mm512_set1_ps(0.5f));
    e = _mm512_mask_add_ps(e, upper, e, one);
    const __m512 f = _mm512_sub_ps(m, one), square = _mm512_mul_ps(f, f);
    __m512 p = _mm512_set1_ps(7.0376836292e-2f);
    for (float next : {-1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
                       -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f})
      p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(next));
    __m512 y = _mm512_mul_ps(_mm512_mul_ps(p, f), square);
    y = _mm512_fmadd_ps(e, _mm512_set1_ps(-2.12194440e-4f), y);
    y = _mm512_fnmadd_ps(square, _mm512_set1_ps(0.5f), y);
    y = _mm512_fmadd_ps(e, _mm512_set1_ps(0.693359375f), _mm512_add_ps(f, y));
    const __m512 most = _mm512_set1_ps(__builtin_inff()), none = _mm512_setzero_ps();
    y = _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x, most, _CMP_EQ_OQ), most);
    return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x, none, _CMP_EQ_OQ), _mm512_sub_ps(none, most));
  }
};

// tanh of |x| is -t / (t + 2) of t = exp(-2 |x|) - 1, whose digits are all there near 0.
struct Tanh {
  COLLAGE_AVX512 static __m512 of(__m512 x, __m512) {
    const __m512 two = _mm512_set1_ps(2.f);
    const __m512 t = exponential_less_one(_mm512_mul_ps(_mm512_abs_ps(x), _mm512_set1_ps(-2.f)));
    const __m512 below = _mm512_div_ps(t, _mm512_add_ps(t, two));
    const __mmask16 positive = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GT_OQ);
    return _mm512_mask_sub_ps(below, positive, _mm512_setzero_ps(), below);
  }
};

// log(1 + exp(a x)) / a; log(1 + e) is twice the inverse hyperbolic tangent of e / (2 + e).
struct SoftRelu {
  COLLAGE_AVX512 static __m512 of(__m512 x, __m512 alpha) {
    const __m512 y = _mm512_mul_ps(alpha, x), two = _mm512_set1_ps(2.f);
    const __m512 e = exponential(_mm512_sub_ps(_mm512_setzero_ps(), _mm512_abs_ps(y)));
    const __m512 z = _mm512_div_ps(e, _mm512_add_ps(e, two)), square = _mm512_mul_ps(z, z);
    __m512 p = _mm512_set1_ps(2.f / 17.f);
    for (float next : {2.f / 15.f, 2.f / 13.f, 2.f / 11.f, 2.f / 9.f, 2.f / 7.f, 2.f / 5.f,
                       2.f / 3.f, 2.f})
      p = _mm512_fmadd_ps(p, square, _mm512_set1_ps(next));
    const __m512 above = _mm512_max_ps(_mm512_setzero_ps(), y);
    return _mm512_div_ps(_mm512_fmadd_ps(p, z, above), alpha);
  }
};

// tanh(log(1 + e)) is n / (n + 2) of n = e (e + 2), which is 1 long before x is 30.
struct Mish {
  COLLAGE_AVX512 static __m512 of(__m512 x, __m512) {
    const __m512 two = _mm512_set1_ps(2.f);
    const __m512 e = exponential(_mm512_min_ps(_mm512_set1_ps(30.f), x));
    const __m512 n = _mm512_mul_ps(e, _mm512_add_ps(e, two));
    return _mm512_mul_ps(x, _mm512_div_ps(n, _mm512_add_ps(n, two)));
  }
};

struct Elu {
  COLLAGE_AVX512 static __m512 of(__m512 x, __m512 alpha) {
    const __m512 below = _mm512_mul_ps(alpha, exponential_less_one(x));
    const __mmask16 positive = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GT_OQ);
    return _mm512_mask_mov_ps(below, positive, x);
  }
};

template <class F>
COLLAGE_AVX512 inline void apply_to_vectors(const float* x, float* y, int64_t count, float alpha) {
  const __m512 parameter = _mm512_set1_ps(alpha);
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m512 a = F::of(_mm512_loadu_ps(x + i), parameter);
    const __m512 b = F::of(_mm512_loadu_ps(x + i + 16), parameter);
    _mm512_storeu_ps(y + i, a);
    _mm512_storeu_ps(y + i + 16, b);
  }
  for (; i < count; i += 16) {
    const __mmask16 lanes = lanes_from(count - i);
    _mm512_mask_storeu_ps(y + i, lanes, F::of(_mm512_maskz_loadu_ps(lanes, x + i), parameter));
  }
}

// None where the library's kernel is as fast or more exact.
inline VectorFunction vector_function(dnnl::algorithm algorithm) {
  switch (algorithm) {
    case dnnl::algorithm::eltwise_logistic: return apply_to_vectors<Logistic>;
    case dnnl::algorithm::eltwise_swish: return apply_to_vectors<Swish>;
    case dnnl::algorithm::eltwise_gelu_tanh: return apply_to_vectors<GeluTanh>;
    case dnnl::algorithm::eltwise_gelu_erf: return apply_to_vectors<GeluErf>;
    case dnnl::algorithm::eltwise_exp: return apply_to_vectors<Exponential>;
    case dnnl::algorithm::eltwise_log: return apply_to_vectors<Logarithm>;
    case dnnl::algorithm::eltwise_tanh: return apply_to_vectors<Tanh>;
    case dnnl::algorithm::eltwise_soft_relu: return apply_to_vectors<SoftRelu>;
    case dnnl::algorithm::eltwise_mish: return apply_to_vectors<Mish>;
    case dnnl::algorithm::eltwise_elu: return apply_to_vectors<Elu>;
    default: return nullptr;
  }
}

// Whether one of those functions is 0 at 0.
inline bool keeps_zero(dnnl::algorithm algorithm) {
  return algorithm != dnnl::algorithm::eltwise_logistic &&
         algorithm != dnnl::algorithm::eltwise_exp && algorithm != dnnl::algorithm::eltwise_log &&
         algorithm != dnnl::algorithm::eltwise_soft_relu;
}

// Whether a pass of its own over `bytes` takes less than the library's functions inside of its
// products. On AMD's processors it was seen to for results of every size; elsewhere it may have to
// wait for memory that is farther than the second cache.
inline bool is_pass_cheap(size_t bytes, size_t cache) {
  return bytes <= cache || __builtin_cpu_is("amd");
}

#else

inline VectorFunction vector_function(dnnl::algorithm) { return nullptr; }
inline bool keeps_zero(dnnl::algorithm) { return false; }
inline bool is_pass_cheap(size_t, size_t) { return false; }

#endif

// Shared by threads in pieces that stay in a first cache.
inline void apply_in_pieces(VectorFunction function, const float* x, float* y, int64_t count,
                            float alpha) {
  constexpr int64_t piece = 2048;
#pragma omp parallel for
  for (int64_t begin = 0; begin < count; begin += piece)
    function(x + begin, y + begin, count - begin < piece ? count - begin : piece, alpha);
}

}  // namespace collage_onednn
