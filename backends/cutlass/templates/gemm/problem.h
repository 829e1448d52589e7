/* The integers that every GEMM unit takes at run time: KernelSpec.sizes, then the slices along K. */
#ifndef COLLAGE_GEMM_PROBLEM_H_
#define COLLAGE_GEMM_PROBLEM_H_

#include "collage_activation.h"
#include "collage_cutlass.h"

namespace collage {

/* d[l] = epilogue(a[l] (M x K) @ b[l] (K x N)); leading dimensions and strides count elements. */
struct GemmProblem {
  int m, n, k, batch;
  int64_t lda, ldb;
  int64_t batch_stride_a, batch_stride_b;
  int slices;
  bool has_bias;
  EpilogueArguments epilogue;

  explicit GemmProblem(const int64_t* sizes)
      : m(static_cast<int>(sizes[0])),
        n(static_cast<int>(sizes[1])),
        k(static_cast<int>(sizes[2])),
        batch(static_cast<int>(sizes[3])),
        lda(sizes[4]),
        ldb(sizes[5]),
        batch_stride_a(sizes[6]),
        batch_stride_b(sizes[7]),
        slices(static_cast<int>(sizes[12])),
        has_bias(sizes[8] != 0) {
    epilogue.activation = static_cast<int>(sizes[9]);
    epilogue.residual = static_cast<int>(sizes[10]);
    epilogue.after = static_cast<int>(sizes[11]);
  }

  /* The result and the residual are dense: rows of n, matrices of m * n. */
  int64_t batch_stride_d() const { return int64_t{m} * n; }
};

/* The operands: a, b, then bias and residual where the problem has them. */
struct GemmOperands {
  const void* a;
  const void* b;
  const void* bias;
  const void* residual;

  GemmOperands(const GemmProblem& problem, const void* const* inputs)
      : a(inputs[0]),
        b(inputs[1]),
        bias(problem.has_bias ? inputs[2] : nullptr),
        residual(problem.epilogue.residual == kNoResidual ? nullptr
                                                          : inputs[problem.has_bias ? 3 : 2]) {}
};

}  // namespace collage

#endif /* COLLAGE_GEMM_PROBLEM_H_ */
