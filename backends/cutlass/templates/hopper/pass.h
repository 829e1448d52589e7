/* A warp's 16 rows of 64 elements on their way to memory.
 *
 * A thread holds pairs of columns of two rows. So that each access to memory is to whole rows, the
 * warp passes them through 2 KiB of shared memory of its own.
 */
#ifndef COLLAGE_HOPPER_PASS_H_
#define COLLAGE_HOPPER_PASS_H_

#include <stdint.h>

#include "hopper/operands.h"

namespace collage {
namespace hopper {

constexpr int kPassBytes = 16 * kRow;

/* Eight elements of a row; those of equal columns lie in different banks. */
__device__ __forceinline__ unsigned char* passed(unsigned char* pass, int row, int eight) {
  return pass + row * kRow + (eight ^ row % 8) * 16;
}

/* Where a thread's i-th pair of 16 lies. */
__device__ __forceinline__ uint32_t* passed_pair(unsigned char* pass, int i) {
  const int lane = threadIdx.x % 32;
  return reinterpret_cast<uint32_t*>(passed(pass, lane / 4 + i % 2 * 8, i / 2) + lane % 4 * 4);
}

/* Visits what a lane moves of the rows and columns that there are, eight elements at a time, as
 * `move(i, shared, place)`: the i-th of four; `place` is counted from the first row's element. */
template <class Move>
__device__ __forceinline__ void each_eight(unsigned char* pass, int64_t pitch, int rows,
                                           int columns, Move move) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = 4 * i + lane / 8, column = lane % 8 * 8;
    uint4* shared = reinterpret_cast<uint4*>(passed(pass, row, lane % 8));
    if (row < rows && column < columns) move(i, shared, row * pitch + column);
  }
}

}  // namespace hopper
}  // namespace collage

#endif /* COLLAGE_HOPPER_PASS_H_ */
