/* The part of the OpenBLAS backend that is compiled once; each partition is data to it. */
#ifndef COLLAGE_OPENBLAS_RUNTIME_H_
#define COLLAGE_OPENBLAS_RUNTIME_H_

#include <stdint.h>

#define COLLAGE_MAX_BATCH_AXES 6

typedef enum {
  COLLAGE_ACT_NONE,
  COLLAGE_ACT_RELU,
  COLLAGE_ACT_GELU,      /* 0.5 x (1 + erf(x / sqrt(2))) */
  COLLAGE_ACT_GELU_TANH, /* its tanh approximation */
  COLLAGE_ACT_TANH,
  COLLAGE_ACT_SIGMOID,
} collage_activation;

/* How the matrices of one operand lie: row-major, or transposed (columns contiguous). Counts of
 * elements; a batch stride of 0 broadcasts. */
typedef struct {
  int transposed;
  int64_t leading;
  int64_t batch_strides[COLLAGE_MAX_BATCH_AXES];
} collage_matrix;

/* c[i] = activation(a[i] b[i] + bias) for every index i of the batch axes. */
typedef struct {
  int64_t rows, columns, inner;
  int32_t num_batch_axes;
  int64_t batch[COLLAGE_MAX_BATCH_AXES];
  collage_matrix a, b, c;
  collage_activation activation;
} collage_matmul;

/* `bias` has one value per column, or is NULL. Runs on the calling thread and the OpenMP pool;
 * may be called from several threads at once. */
void collage_openblas_matmul(const collage_matmul* problem, const float* a, const float* b,
                             const float* bias, float* c);

/* row[i] = activation(row[i] + bias[i]) */
void collage_epilogue_row(collage_activation activation, const float* bias, float* row,
                          int64_t count);

#endif /* COLLAGE_OPENBLAS_RUNTIME_H_ */
