/* A product in cublasLt's words: descriptors, layouts and candidate algorithms. Shared by the runtime
 * and by the program that times algorithms while compiling. */
#ifndef COLLAGE_CUBLAS_PLAN_H_
#define COLLAGE_CUBLAS_PLAN_H_

#include <collage_cuda.h>
#include <cublasLt.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "cublas_problem.h"

namespace collage_cublas {

/* Arguments are aligned to this: no algorithm asks for more than one 128-bit load. */
constexpr uint32_t kAlignment = 16;

inline void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(call) + ": " + cublasLtGetStatusString(status));
}

inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess)
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
}

/* The algorithm of a product and the objects that a call hands over. They hold no resources, so a
 * plan may be copied and is never freed. */
struct Plan {
  cublasLtHandle_t handle;
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, d; /* C lies as D does */
  cublasLtMatmulAlgo_t algorithm;
  size_t workspace_bytes;
  void* workspace;
};

inline cudaDataType_t data_type(const collage_cublas_problem& problem) {
  switch (problem.dtype) {
    case COLLAGE_CUBLAS_FLOAT16:
      return CUDA_R_16F;
    case COLLAGE_CUBLAS_BFLOAT16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

inline int bits_of(const collage_cublas_problem& problem) {
  return problem.dtype == COLLAGE_CUBLAS_FLOAT32 ? 32 : 16;
}

/* Elements in memory of the operands; all of them are dense. */
inline int64_t elements_a(const collage_cublas_problem& p) {
  return p.m * p.k * (p.stride_a == 0 ? 1 : p.batch);
}
inline int64_t elements_b(const collage_cublas_problem& p) {
  return p.k * p.n * (p.stride_b == 0 ? 1 : p.batch);
}
inline int64_t elements_d(const collage_cublas_problem& p) { return p.m * p.n * p.batch; }

inline void init_layout(cublasLtMatrixLayoutOpaque_t* layout, const collage_cublas_problem& problem,
                        int64_t rows, int64_t columns, int64_t leading, int64_t stride) {
  check(cublasLtMatrixLayoutInit(layout, data_type(problem), static_cast<uint64_t>(rows),
                                 static_cast<uint64_t>(columns), leading),
        "cublasLtMatrixLayoutInit");
  if (problem.batch == 1) return;
  const int32_t count = static_cast<int32_t>(problem.batch);
  check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                         sizeof(count)),
        "batch count");
  check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                         &stride, sizeof(stride)),
        "batch stride");
}

template <typename T>
void set_attribute(cublasLtMatmulDescOpaque_t* operation, cublasLtMatmulDescAttributes_t attribute,
                   T value, const char* what) {
  check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)), what);
}

inline void set_bias(cublasLtMatmulDescOpaque_t* operation, const void* bias) {
  set_attribute(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias, "bias pointer");
}

inline uint32_t epilogue(const collage_cublas_problem& problem) {
  uint32_t flags = 0;
  if (problem.bias) flags |= CUBLASLT_EPILOGUE_BIAS;
  if (problem.relu) flags |= CUBLASLT_EPILOGUE_RELU;
  if (problem.gelu) flags |= CUBLASLT_EPILOGUE_GELU;
  return flags == 0 ? uint32_t{CUBLASLT_EPILOGUE_DEFAULT} : flags;
}

/* Everything of a plan but its algorithm and workspace. Accumulates in float32 always. */
inline Plan describe(cublasLtHandle_t handle, const collage_cublas_problem& p) {
  Plan plan{};
  plan.handle = handle;
  check(cublasLtMatmulDescInit(&plan.operation,
                               p.allow_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                               CUDA_R_32F),
        "cublasLtMatmulDescInit");
  set_attribute(&plan.operation, CUBLASLT_MATMUL_DESC_TRANSA,
                static_cast<int32_t>(p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N), "transpose A");
  set_attribute(&plan.operation, CUBLASLT_MATMUL_DESC_TRANSB,
                static_cast<int32_t>(p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N), "transpose B");
  set_attribute(&plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(p), "epilogue");
  /* The heuristic reads the bias's alignment off its address; each call puts the real one. */
  if (p.bias) set_bias(&plan.operation, reinterpret_cast<const void*>(uintptr_t{kAlignment}));
  init_layout(&plan.a, p, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.lda, p.stride_a);
  init_layout(&plan.b, p, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.ldb, p.stride_b);
  init_layout(&plan.d, p, p.m, p.n, p.ldd, p.stride_d);
  return plan;
}

template <typename T>
void set_preference(cublasLtMatmulPreferenceOpaque_t* preference,
                    cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
        "cublasLtMatmulPreferenceSetAttribute");
}

/* cublasLt's best guesses for a product, the best one first; never empty. */
inline std::vector<cublasLtMatmulHeuristicResult_t> candidates(Plan& plan,
                                                               const collage_cublas_problem& p,
                                                               int count) {
  cublasLtMatmulPreferenceOpaque_t preference;
  check(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  set_preference(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                 static_cast<uint64_t>(p.workspace_limit));
  /* Partial sums of a split product stay in float32; they are never rounded to a narrower type. */
  const bool wide = p.dtype == COLLAGE_CUBLAS_FLOAT32;
  set_preference(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                 uint32_t{wide ? CUBLASLT_REDUCTION_SCHEME_MASK
                               : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    set_preference(&preference, attribute, kAlignment);
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(count));
  int returned = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(plan.handle, &plan.operation, &plan.a, &plan.b, &plan.d,
                                     &plan.d, &preference, count, found.data(), &returned);
  std::vector<cublasLtMatmulHeuristicResult_t> usable;
  for (int i = 0; i < returned; ++i)
    if (found[i].state == CUBLAS_STATUS_SUCCESS) usable.push_back(found[i]);
  if (status != CUBLAS_STATUS_SUCCESS || usable.empty())
    throw std::runtime_error(std::string("cublasLt has no algorithm for this product: ") +
                             cublasLtGetStatusString(status));
  return usable;
}

/* `bias` may be NULL where the product has none; `residual` likewise. */
inline cublasStatus_t launch(const Plan& plan, const collage_cublas_problem& problem, const void* a,
                             const void* b, const void* bias, const void* residual, void* result,
                             cudaStream_t stream) {
  static const float one = 1.0f, zero = 0.0f;
  /* A copy, because calls from several threads may bring different biases. */
  cublasLtMatmulDescOpaque_t operation = plan.operation;
  if (problem.bias) set_bias(&operation, bias);
  /* The library's layouts are not const, though it only reads them. */
  auto layout = [](const cublasLtMatrixLayoutOpaque_t& of) {
    return const_cast<cublasLtMatrixLayoutOpaque_t*>(&of);
  };
  return cublasLtMatmul(plan.handle, &operation, &one, a, layout(plan.a), b, layout(plan.b),
                        problem.residual ? &one : &zero, problem.residual ? residual : result,
                        layout(plan.d), result, layout(plan.d), &plan.algorithm, plan.workspace,
                        plan.workspace_bytes, stream);
}

/* What an algorithm depends on besides the library's version. */
inline void device_facts(int device, int64_t* compute_capability, int64_t* multiprocessors) {
  int major = 0, minor = 0, count = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "device");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "device");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "device");
  *compute_capability = major * 10 + minor;
  *multiprocessors = count;
}

}  // namespace collage_cublas

#endif /* COLLAGE_CUBLAS_PLAN_H_ */
