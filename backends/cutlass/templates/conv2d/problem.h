/* The integers that every convolution unit takes at run time: KernelSpec.sizes, then the epilogue
 * and the slices of the reduced axis. NHWC data, OHWI weights, all dense. */
#ifndef COLLAGE_CONV2D_PROBLEM_H_
#define COLLAGE_CONV2D_PROBLEM_H_

#include "collage_activation.h"
#include "collage_cutlass.h"

namespace collage {

struct Conv2dProblem {
  int n, h, w, c;      /* data */
  int k, r, s;         /* weights: output channels, height, width */
  int p, q;            /* height and width of the result */
  int top, left, below, right; /* zeros around the data */
  int stride_h, stride_w, dilation_h, dilation_w;
  bool has_bias;
  int slices;
  EpilogueArguments epilogue;

  explicit Conv2dProblem(const int64_t* sizes) {
    int* const fields[] = {&n,        &h,        &w,          &c,         &k,   &r,
                           &s,        &p,        &q,          &top,       &left, &below,
                           &right,    &stride_h, &stride_w,   &dilation_h, &dilation_w};
    for (int* field : fields) *field = static_cast<int>(*sizes++);
    has_bias = *sizes++ != 0;
    epilogue.activation = static_cast<int>(*sizes++);
    epilogue.residual = static_cast<int>(*sizes++);
    epilogue.after = static_cast<int>(*sizes++);
    slices = static_cast<int>(*sizes++);
  }

  /* Elements of the result. */
  int64_t result_size() const { return int64_t{n} * p * q * k; }
};

/* The operands: data, weights, then bias and residual where the problem has them. */
struct Conv2dOperands {
  const void* data;
  const void* weights;
  const void* bias;
  const void* residual;

  Conv2dOperands(const Conv2dProblem& problem, const void* const* inputs)
      : data(inputs[0]),
        weights(inputs[1]),
        bias(problem.has_bias ? inputs[2] : nullptr),
        residual(problem.epilogue.residual == kNoResidual ? nullptr
                                                          : inputs[problem.has_bias ? 3 : 2]) {}
};

}  // namespace collage

#endif /* COLLAGE_CONV2D_PROBLEM_H_ */
