// Elementwise functions and softmax in vectors of ours, as wide as the processor has them: each width
// is compiled by itself, beside the regions (kernels_avx2.cc, kernels_avx512.cc).
#pragma once

#include <vector>

#include "../linkage.h"
#include "../processor.h"

namespace collage_onednn {

// Of `count` numbers side by side; `x` may be `y`.
using VectorFunction = void (*)(const float* x, float* y, int64_t count, float alpha);

// An elementwise operator in a chain of them, with another operand or two numbers.
struct Link {
  enum What {
    none, add, sub, mul, div, max, min, slopes,
    relu, leaky, clip, linear, logistic, swish, gelu_erf, gelu_tanh, tanh,
  } what;
  bool by_column;  // else the other operand is one number
  const float* y;  // none where there are the two numbers
  int64_t pitch;   // of the other operand's rows; 0 where all have the same
  float alpha, beta;
};

// Rows of `width` numbers, of which the results have no gaps.
struct Chain {
  std::vector<Link> links;
  const void* x;
  bool halves;  // whether x is in bfloat16; results are then, too
  int64_t pitch, width;
  void* result;
};

constexpr int64_t kDepthwiseBlock = 32;     // channels that are made together
constexpr int64_t kMostDepthwiseTaps = 64;  // along rows

// Convolutions of each channel by itself, channels last, to bfloat16: of rows and columns.
struct Depthwise {
  int64_t channels, read[2], made[2], taps[2], step[2], dilation[2], padding[2];
  bool reads_rounded;
  float least, most;        // of the sums
  std::vector<Link> links;  // behind them, without other operands

  int64_t span(int axis) const { return (taps[axis] - 1) * dilation[axis] + 1; }
  int64_t seen_width() const { return (made[1] - 1) * step[1] + span(1); }
  // Numbers that one thread keeps: the rows that taps see, and one of zeros.
  int64_t room() const { return (span(0) + 1) * seen_width() * kDepthwiseBlock; }
};

struct DepthwiseData {
  const void* x;
  const float *weights, *bias;  // of each block its taps, and of each tap even channels, then odd ones
  void* y;
};

#define COLLAGE_VECTOR_FUNCTIONS                                                               \
  COLLAGE_WEAK VectorFunction vector_function(dnnl_alg_kind_t algorithm);                      \
  COLLAGE_WEAK void softmax_of_rows(const float* x, float* y, int64_t rows, int64_t count,     \
                                    bool logarithm);                                           \
  /* Results in float32. */                                                                     \
  COLLAGE_WEAK void chained_rows(const Chain& chain, int64_t first, int64_t last);
namespace avx2 {
COLLAGE_VECTOR_FUNCTIONS
}
namespace avx512 {
COLLAGE_VECTOR_FUNCTIONS
// Results in bfloat16.
COLLAGE_WEAK void rounded_rows(const Chain& chain, int64_t first, int64_t last);
COLLAGE_WEAK void depthwise_rows(const Depthwise& s, int64_t image, int64_t block, int64_t first,
                                 int64_t last, const DepthwiseData& data, float* room);
// The least and the largest value, and zero.
COLLAGE_WEAK void range_of(const float* x, int64_t count, float* low, float* high);
// Gives the sum of the bytes.
COLLAGE_WEAK int32_t to_bytes(const float* x, int64_t count, float step, float point,
                              uint8_t* bytes);
}  // namespace avx512

}  // namespace collage_onednn

#ifdef COLLAGE_X86

namespace collage_onednn {

inline bool has_avx512() { return has_isa(dnnl_cpu_isa_avx512_core); }

inline bool has_vectors() {
  return has_avx512() || (has_isa(dnnl_cpu_isa_avx2) && __builtin_cpu_supports("fma"));
}

// None where the library's kernel is as fast or more exact.
inline VectorFunction vector_function(dnnl_alg_kind_t algorithm) {
  if (!has_vectors()) return nullptr;
  return has_avx512() ? avx512::vector_function(algorithm) : avx2::vector_function(algorithm);
}

// Rows one after the other; `y` is not `x`.
inline void softmax_of_rows(const float* x, float* y, int64_t rows, int64_t count, bool logarithm) {
  return has_avx512() ? avx512::softmax_of_rows(x, y, rows, count, logarithm)
                      : avx2::softmax_of_rows(x, y, rows, count, logarithm);
}

// Whether one of those functions is 0 at 0.
inline bool keeps_zero(dnnl_alg_kind_t algorithm) {
  return algorithm != dnnl_eltwise_logistic &&
         algorithm != dnnl_eltwise_exp && algorithm != dnnl_eltwise_log &&
         algorithm != dnnl_eltwise_soft_relu;
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

inline bool has_avx512() { return false; }
inline bool has_vectors() { return false; }
inline void softmax_of_rows(const float*, float*, int64_t, int64_t, bool) {}
inline VectorFunction vector_function(dnnl_alg_kind_t) { return nullptr; }
inline bool keeps_zero(dnnl_alg_kind_t) { return false; }
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
