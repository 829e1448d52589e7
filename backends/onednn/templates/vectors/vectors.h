// Elementwise functions and softmax in vectors of ours, as wide as the processor has them.
#pragma once

#include <cmath>
#include <initializer_list>
#include <limits>

#include <oneapi/dnnl/dnnl.hpp>

#include "../processor.h"
#include "lanes_avx2.h"
#include "lanes_avx512.h"

namespace collage_onednn {

// Of `count` numbers side by side; `x` may be `y`.
using VectorFunction = void (*)(const float* x, float* y, int64_t count, float alpha);

}  // namespace collage_onednn

#ifdef COLLAGE_AVX512

#define COLLAGE_LANES COLLAGE_AVX2
namespace collage_onednn::avx2 {
#include "exponential.h"
#include "functions.h"
#include "softmax_rows.h"
}  // namespace collage_onednn::avx2
#undef COLLAGE_LANES

#define COLLAGE_LANES COLLAGE_AVX512
namespace collage_onednn::avx512 {
#include "exponential.h"
#include "functions.h"
#include "softmax_rows.h"
}  // namespace collage_onednn::avx512
#undef COLLAGE_LANES

namespace collage_onednn {

inline bool has_avx512() { return has_isa(dnnl::cpu_isa::avx512_core); }

inline bool has_vectors() {
  return has_avx512() || (has_isa(dnnl::cpu_isa::avx2) && __builtin_cpu_supports("fma"));
}

// None where the library's kernel is as fast or more exact.
inline VectorFunction vector_function(dnnl::algorithm algorithm) {
  if (!has_vectors()) return nullptr;
  return has_avx512() ? avx512::vector_function(algorithm) : avx2::vector_function(algorithm);
}

// Rows one after the other; `y` is not `x`.
inline void softmax_of_rows(const float* x, float* y, int64_t rows, int64_t count, bool logarithm) {
  return has_avx512() ? avx512::softmax_of_rows(x, y, rows, count, logarithm)
                      : avx2::softmax_of_rows(x, y, rows, count, logarithm);
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

}  // namespace collage_onednn

#else

namespace collage_onednn {

inline bool has_vectors() { return false; }
inline void softmax_of_rows(const float*, float*, int64_t, int64_t, bool) {}
inline VectorFunction vector_function(dnnl::algorithm) { return nullptr; }
inline bool keeps_zero(dnnl::algorithm) { return false; }
inline bool is_pass_cheap(size_t, size_t) { return false; }

}  // namespace collage_onednn

#endif

namespace collage_onednn {

// Shared by threads in pieces that stay in a first cache.
inline void apply_in_pieces(VectorFunction function, const float* x, float* y, int64_t count,
                            float alpha) {
  constexpr int64_t piece = 2048;
#pragma omp parallel for
  for (int64_t begin = 0; begin < count; begin += piece)
    function(x + begin, y + begin, count - begin < piece ? count - begin : piece, alpha);
}

}  // namespace collage_onednn
