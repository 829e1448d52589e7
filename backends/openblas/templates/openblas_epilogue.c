/* Bias and activation of one row of a product, written so that the compiler vectorizes every loop.
 *
 * The rational approximations of tanh and erf are the ones of Eigen (MathFunctionsImpl.h) and of
 * TVM's fast_math (topi/elemwise.h); the exponential is Cephes' expf. Largest error against the
 * exact functions: a few units in the last place of 1.
 */
#include <stddef.h>
#include <string.h>

#include "openblas_runtime.h"

/* One machine code per vector width, chosen when the library is loaded: a bundle made on one machine
 * runs on another. */
#if defined(__x86_64__) && defined(__ELF__)
#define FOR_EACH_VECTOR_WIDTH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_VECTOR_WIDTH
#endif
#define INLINE static inline __attribute__((always_inline))

INLINE float clamp(float x, float low, float high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

INLINE float exponential(float x) {
  x = clamp(x, -87.0f, 88.0f);
  const float shifter = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
  float n = (x * 1.44269504088896341f + shifter) - shifter;
  float r = (x - n * 0.693359375f) + n * 2.12194440e-4f; /* ln(2) in two parts */
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  int32_t bits = ((int32_t)n + 127) << 23; /* 2^n */
  float scale;
  memcpy(&scale, &bits, sizeof(scale));
  return p * scale;
}

INLINE float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

INLINE float hyperbolic_tangent(float x) {
  x = clamp(x, -7.90531110763549805f, 7.90531110763549805f);
  float s = x * x;
  float p = -2.76076847742355e-16f;
  p = p * s + 2.00018790482477e-13f;
  p = p * s + -8.60467152213735e-11f;
  p = p * s + 5.12229709037114e-08f;
  p = p * s + 1.48572235717979e-05f;
  p = p * s + 6.37261928875436e-04f;
  p = p * s + 4.89352455891786e-03f;
  float q = 1.19825839466702e-06f;
  q = q * s + 1.18534705686654e-04f;
  q = q * s + 2.26843463243900e-03f;
  q = q * s + 4.89352518554385e-03f;
  return x * p / q;
}

INLINE float error_function(float x) {
  x = clamp(x, -4.0f, 4.0f);
  float s = x * x;
  float p = -2.72614225801306e-10f;
  p = p * s + 2.77068142495902e-08f;
  p = p * s + -2.10102402082508e-06f;
  p = p * s + -5.69250639462346e-05f;
  p = p * s + -7.34990630326855e-04f;
  p = p * s + -2.95459980854025e-03f;
  p = p * s + -1.60960333262415e-02f;
  float q = -1.45660718464996e-05f;
  q = q * s + -2.13374055278905e-04f;
  q = q * s + -1.68282697438203e-03f;
  q = q * s + -7.37332916720468e-03f;
  q = q * s + -1.42647390514189e-02f;
  return x * p / q;
}

INLINE float rectified(float x) { return x < 0.0f ? 0.0f : x; } /* keeps NaN */

INLINE float gelu(float x) { return 0.5f * x * (1.0f + error_function(x * 0.707106781186547524f)); }

INLINE float gelu_tanh(float x) {
  float inner = 0.797884560802865356f * (x + 0.044715f * x * x * x);
  return 0.5f * x * (1.0f + hyperbolic_tangent(inner));
}

#define DEFINE_ROW(name, function)                                                             \
  FOR_EACH_VECTOR_WIDTH static void name(const float* restrict bias, float* restrict row,      \
                                         int64_t count) {                                      \
    if (bias != NULL) {                                                                        \
      for (int64_t i = 0; i < count; ++i) row[i] = function(row[i] + bias[i]);                 \
    } else {                                                                                   \
      for (int64_t i = 0; i < count; ++i) row[i] = function(row[i]);                           \
    }                                                                                          \
  }

DEFINE_ROW(row_none, )
DEFINE_ROW(row_relu, rectified)
DEFINE_ROW(row_gelu, gelu)
DEFINE_ROW(row_gelu_tanh, gelu_tanh)
DEFINE_ROW(row_tanh, hyperbolic_tangent)
DEFINE_ROW(row_sigmoid, sigmoid)

__attribute__((visibility("hidden"))) void collage_epilogue_row(collage_activation activation,
                                                                const float* bias, float* row,
                                                                int64_t count) {
  switch (activation) {
    case COLLAGE_ACT_NONE:
      if (bias != NULL) row_none(bias, row, count);
      break;
    case COLLAGE_ACT_RELU:
      row_relu(bias, row, count);
      break;
    case COLLAGE_ACT_GELU:
      row_gelu(bias, row, count);
      break;
    case COLLAGE_ACT_GELU_TANH:
      row_gelu_tanh(bias, row, count);
      break;
    case COLLAGE_ACT_TANH:
      row_tanh(bias, row, count);
      break;
    case COLLAGE_ACT_SIGMOID:
      row_sigmoid(bias, row, count);
      break;
  }
}
