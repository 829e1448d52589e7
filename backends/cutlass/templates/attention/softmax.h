/* Softmax of rows that are seen a piece at a time, as a warp group's sums hold them.
 *
 * A thread has pairs of columns of two rows, and four neighbours share a row. Milakov and
 * Gimelshein, "Online normalizer calculation for softmax", 2018.
 */
#ifndef COLLAGE_ATTENTION_SOFTMAX_H_
#define COLLAGE_ATTENTION_SOFTMAX_H_

#include <math.h>

#include "hopper/ptx.h"

namespace collage {
namespace hopper {

/* Whether the i-th of a thread's numbers is of its second row. */
__device__ __forceinline__ constexpr int row_of(int i) { return i / 2 % 2; }

/* Its column, without the thread's own part. */
__device__ __forceinline__ constexpr int column_of(int i) { return i / 4 * 8 + i % 2; }

class OnlineSoftmax {
 public:
  /* `unit`: what a score counts in powers of two. */
  __device__ explicit OnlineSoftmax(float unit) : unit_(unit) {}

  /* Makes weights of a piece's scores, to be divided by `sum` in the end; `factor` is what all that
   * was summed before has to be multiplied by. A row that saw nothing but -inf has no weight. */
  template <int kNumbers>
  __device__ __forceinline__ void next(float (&scores)[kNumbers]) {
    float top[2] = {top_[0], top_[1]};
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) top[row_of(i)] = fmaxf(top[row_of(i)], scores[i]);
    float base[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      top[row] = over_neighbours(top[row], [](float x, float y) { return fmaxf(x, y); });
      base[row] = top[row] == -INFINITY ? 0.0f : top[row] * unit_;
      factor[row] = power_of_two(top_[row] * unit_ - base[row]);
      sum_[row] *= factor[row];
      top_[row] = top[row];
    }
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) {
      scores[i] = power_of_two(scores[i] * unit_ - base[row_of(i)]);
      sum_[row_of(i)] += scores[i];
    }
  }

  /* Of all weights of a row. */
  __device__ __forceinline__ float sum(int row) const {
    return over_neighbours(sum_[row], [](float x, float y) { return x + y; });
  }

  float factor[2];

 private:
  template <class Merge>
  __device__ __forceinline__ static float over_neighbours(float x, Merge merge) {
    x = merge(x, __shfl_xor_sync(0xffffffff, x, 1));
    return merge(x, __shfl_xor_sync(0xffffffff, x, 2));
  }

  float unit_;
  float top_[2] = {-INFINITY, -INFINITY};
  float sum_[2] = {0.0f, 0.0f};
};

}  // namespace hopper
}  // namespace collage

#endif /* COLLAGE_ATTENTION_SOFTMAX_H_ */
