/* What the generated stubs hand to the cuBLAS runtime: matrix products as data. Plain C, so that a
 * stub compiles in a few hundredths of a second. */
#ifndef COLLAGE_CUBLAS_PROBLEM_H_
#define COLLAGE_CUBLAS_PROBLEM_H_

#include <stdint.h>
#include <tvm/ffi/c_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COLLAGE_CUBLAS_MAX_DEVICES 16

typedef enum {
  COLLAGE_CUBLAS_FLOAT16 = 0,
  COLLAGE_CUBLAS_BFLOAT16 = 1,
  COLLAGE_CUBLAS_FLOAT32 = 2,
} collage_cublas_dtype;

/* D = activation(op(A) op(B) + residual + bias), all matrices column-major: op(A) is m x k, op(B)
 * k x n, D and the residual m x n, the bias m values. Leading dimensions and batch strides count
 * elements. problem.py writes these fields, in this order. */
typedef struct {
  int64_t m, n, k, batch;
  int64_t transpose_a, transpose_b;
  int64_t lda, ldb, ldd;
  int64_t stride_a, stride_b, stride_d; /* 0 shares an operand in the batch */
  int64_t dtype;                        /* collage_cublas_dtype, of all tensors */
  int64_t allow_tf32;
  int64_t bias, residual, relu, gelu; /* which epilogues are on */
  int64_t workspace_limit;            /* bytes */
} collage_cublas_problem;

/* An algorithm that was chosen while compiling, and where it holds. */
typedef struct {
  int64_t version; /* of cublasLt */
  int64_t compute_capability, multiprocessors;
  int64_t workspace_bytes;
  uint64_t algorithm[8]; /* cublasLtMatmulAlgo_t */
} collage_cublas_choice;

/* A product with what its first call on each device prepares. */
typedef struct {
  const collage_cublas_problem* problem;
  const collage_cublas_choice* choice; /* or NULL: ask cublasLt's heuristic at the first call */
  void* plans[COLLAGE_CUBLAS_MAX_DEVICES];
} collage_cublas_product;

/* Positions among an entry's arguments; -1 where there is none. */
typedef struct {
  int32_t a, b, bias, residual, result;
} collage_cublas_arguments;

/* Launches a product on TVM's current stream. Returns 0, or -1 with an error raised. */
int collage_cublas_run(collage_cublas_product* product, const collage_cublas_arguments* where,
                       const TVMFFIAny* args);

/* Makes the device's shared workspace at least this large; called while the library is loaded. */
void collage_cublas_reserve_workspace(int64_t bytes);

#ifdef __cplusplus
}
#endif

#endif /* COLLAGE_CUBLAS_PROBLEM_H_ */
