/* What may follow a product, in float: alpha, bias, activation, residual, activation.
 *
 * Which of them is chosen at run time, so that one compiled kernel serves every such chain: the
 * choice is the same for all threads and is made once per vector. Kernels are compiled in two
 * classes, since the costly functions take registers and code even where they are not used.
 */
#ifndef COLLAGE_ACTIVATION_H_
#define COLLAGE_ACTIVATION_H_

#include <cuda_runtime.h>

namespace collage {

/* The numbers of epilogue.py. Those up to kLastLight are cheap. */
enum Activation : int {
  kIdentity = 0,
  kRelu = 1,
  kHardSwish = 2,
  kRelu6 = 3,
  kLastLight = kRelu6,
  kGelu = 4,
  kGeluTanh = 5,
  kSilu = 6,
  kSigmoid = 7,
};

enum Residual : int { kNoResidual = 0, kAddResidual = 1, kMultiplyResidual = 2 };

/* y = after(residual(activation(alpha * x + bias), source)) */
struct EpilogueArguments {
  float alpha = 1.0f;
  int activation = kIdentity;
  int residual = kNoResidual;
  int after = kIdentity;
};

/* kExact: for float results. Half results do not show the last bits of the fast exponential. */
template <bool kExact>
__device__ __forceinline__ float sigmoid(float x) {
  if constexpr (kExact) return 1.0f / (1.0f + expf(-x));
  return __fdividef(1.0f, 1.0f + __expf(-x));
}

template <bool kHeavy, bool kExact, int kCount, class Vector>
__device__ __forceinline__ void activate(int activation, Vector& x) {
  switch (activation) {
    case kRelu:
#pragma unroll
      for (int i = 0; i < kCount; ++i) x[i] = x[i] < 0.0f ? 0.0f : x[i];
      return;
    case kHardSwish:
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        x[i] = x[i] * fminf(fmaxf(x[i] * (1.0f / 6.0f) + 0.5f, 0.0f), 1.0f);
      }
      return;
    case kRelu6:
#pragma unroll
      for (int i = 0; i < kCount; ++i) x[i] = fminf(fmaxf(x[i], 0.0f), 6.0f);
      return;
    default:
      break;
  }
  if constexpr (kHeavy) {
    switch (activation) {
      case kGelu:
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          x[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678118654752f));
        }
        return;
      case kGeluTanh: /* (1 + tanh(u)) / 2 is sigmoid(2 u) */
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          float u = 0.79788456080286536f * (x[i] + 0.044715f * x[i] * x[i] * x[i]);
          x[i] = x[i] * sigmoid<kExact>(2.0f * u);
        }
        return;
      case kSilu:
#pragma unroll
        for (int i = 0; i < kCount; ++i) x[i] = x[i] * sigmoid<kExact>(x[i]);
        return;
      case kSigmoid:
#pragma unroll
        for (int i = 0; i < kCount; ++i) x[i] = sigmoid<kExact>(x[i]);
        return;
      default:
        break;
    }
  }
}

/* Everything up to the residual, in place. */
template <bool kHeavy, bool kExact, int kCount, class Vector, class Bias>
__device__ __forceinline__ void before_residual(const EpilogueArguments& args, Vector& x,
                                                const Bias& bias) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) x[i] = args.alpha * x[i] + bias[i];
  activate<kHeavy, kExact, kCount>(args.activation, x);
}

/* The residual and what follows it, in place. */
template <bool kHeavy, bool kExact, int kCount, class Vector, class Source>
__device__ __forceinline__ void residual(const EpilogueArguments& args, Vector& x,
                                         const Source& source) {
  if (args.residual == kAddResidual) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = x[i] + source[i];
  } else if (args.residual == kMultiplyResidual) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = x[i] * source[i];
  }
  activate<kHeavy, kExact, kCount>(args.after, x);
}

}  // namespace collage

#endif /* COLLAGE_ACTIVATION_H_ */
