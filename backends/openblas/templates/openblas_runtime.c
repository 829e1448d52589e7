/* Batches of matrix products on OpenBLAS, shared out to the one OpenMP pool.
 *
 * OpenBLAS runs on one thread per call and the product is divided here. Its own threads would be a
 * second pool, and handing them to OpenMP through scipy_openblas_set_threads_callback_function was
 * measured no faster and is not safe: the jobs of one product wait for each other, so they hang
 * where OpenMP grants fewer threads than jobs (inside another parallel region, or under a thread
 * limit), multi-threaded products take turns under one lock, and the callback, global to the
 * process, would point into this library after it is unloaded.
 */
#include "openblas_runtime.h"

#include <cblas.h>
#include <omp.h>
#include <stddef.h>

int collage_num_threads(void); /* num_threads.c */

/* A task of fewer floating-point operations is not worth waking a thread for (about 2 us). */
static const double min_task_flop = 2e5;
/* OpenBLAS's kernels work in blocks of this size; tiles cut between them. */
static const int64_t row_block = 4, column_block = 16;

typedef struct {
  int64_t begin, end;
} range;

static int64_t blocks(int64_t extent, int64_t block) { return (extent + block - 1) / block; }

static range part_of(int64_t extent, int64_t block, int64_t part, int64_t parts) {
  int64_t count = blocks(extent, block);
  range r = {count * part / parts * block, count * (part + 1) / parts * block};
  if (r.end > extent) r.end = extent;
  return r;
}

static int64_t greatest_common_divisor(int64_t a, int64_t b) {
  while (b != 0) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* Into how many row and column parts to cut one product of a batch, so that the tasks of the whole
 * batch divide evenly among the threads. Of the ways to cut, the one that packs least is taken:
 * every row part packs all of b, every column part all of a. */
static void choose_grid(const collage_matmul* p, int64_t batches, int64_t threads,
                        int64_t* row_parts, int64_t* column_parts) {
  double flop = 2.0 * (double)p->rows * (double)p->columns * (double)p->inner;
  int64_t parts = threads / greatest_common_divisor(threads, batches);
  int64_t worthwhile = (int64_t)(flop / min_task_flop);
  if (parts > worthwhile) parts = worthwhile;
  for (; parts > 1; --parts) {
    double least = -1.0;
    for (int64_t r = 1; r <= parts; ++r) {
      int64_t q = parts / r;
      if (r * q != parts || r > blocks(p->rows, row_block) || q > blocks(p->columns, column_block))
        continue;
      double packed = (double)p->inner *
                      ((double)r * (double)p->columns + (double)q * (double)p->rows);
      if (least < 0.0 || packed <= least) {
        least = packed;
        *row_parts = r;
        *column_parts = q;
      }
    }
    if (least >= 0.0) return;
  }
  *row_parts = *column_parts = 1;
}

static const float* at(const collage_matrix* matrix, const float* data, int64_t row,
                       int64_t column) {
  return matrix->transposed ? data + column * matrix->leading + row
                            : data + row * matrix->leading + column;
}

static int64_t batch_offset(const collage_matmul* p, const collage_matrix* matrix, int64_t index) {
  int64_t offset = 0;
  for (int32_t axis = p->num_batch_axes - 1; axis >= 0; --axis) {
    offset += index % p->batch[axis] * matrix->batch_strides[axis];
    index /= p->batch[axis];
  }
  return offset;
}

static void tile(const collage_matmul* p, const float* a, const float* b, const float* bias,
                 float* c, range rows, range columns) {
  const blasint m = (blasint)(rows.end - rows.begin), n = (blasint)(columns.end - columns.begin);
  const blasint k = (blasint)p->inner;
  const blasint lda = (blasint)p->a.leading, ldb = (blasint)p->b.leading;
  if (m == 0 || n == 0) return;
  a = at(&p->a, a, rows.begin, 0);
  b = at(&p->b, b, 0, columns.begin);
  c += rows.begin * p->c.leading + columns.begin;
  if (p->rows == 1 && p->b.transposed) {
    scipy_cblas_sgemv(CblasRowMajor, CblasNoTrans, n, k, 1.0f, b, ldb, a,
                      p->a.transposed ? lda : 1, 0.0f, c, 1);
  } else if (p->rows == 1) {
    scipy_cblas_sgemv(CblasRowMajor, CblasTrans, k, n, 1.0f, b, ldb, a,
                      p->a.transposed ? lda : 1, 0.0f, c, 1);
  } else {
    scipy_cblas_sgemm(CblasRowMajor, p->a.transposed ? CblasTrans : CblasNoTrans,
                      p->b.transposed ? CblasTrans : CblasNoTrans, m, n, k, 1.0f, a, lda, b, ldb,
                      0.0f, c, (blasint)p->c.leading);
  }
  if (bias == NULL && p->activation == COLLAGE_ACT_NONE) return;
  for (blasint row = 0; row < m; ++row)
    collage_epilogue_row(p->activation, bias == NULL ? NULL : bias + columns.begin,
                         c + row * p->c.leading, n);
}

__attribute__((visibility("hidden"))) void collage_openblas_matmul(const collage_matmul* p,
                                                                   const float* a, const float* b,
                                                                   const float* bias, float* c) {
  const int threads = collage_num_threads();
  int64_t batches = 1, row_parts, column_parts;
  for (int32_t axis = 0; axis < p->num_batch_axes; ++axis) batches *= p->batch[axis];
  choose_grid(p, batches, threads, &row_parts, &column_parts);
  const int64_t per_batch = row_parts * column_parts, tasks = batches * per_batch;
  const double flop = 2.0 * (double)batches * (double)p->rows * (double)p->columns *
                      (double)p->inner;

  scipy_openblas_set_num_threads(1);
#pragma omp parallel for num_threads(threads) schedule(static) \
    if (tasks > 1 && threads > 1 && flop >= 2.0 * min_task_flop)
  for (int64_t task = 0; task < tasks; ++task) {
    const int64_t batch = task / per_batch, part = task % per_batch;
    tile(p, a + batch_offset(p, &p->a, batch), b + batch_offset(p, &p->b, batch), bias,
         c + batch_offset(p, &p->c, batch),
         part_of(p->rows, row_block, part / column_parts, row_parts),
         part_of(p->columns, column_block, part % column_parts, column_parts));
  }
}
