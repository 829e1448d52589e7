/* What becomes of a warp's 16 rows of sums: bias, activation, residual, and where they go.
 *
 * The warp passes 64 columns at a time through shared memory: what comes in, then what goes out.
 */
#ifndef COLLAGE_HOPPER_ROWS_H_
#define COLLAGE_HOPPER_ROWS_H_

#include <stdint.h>

#include "collage_activation.h"
#include "hopper/elements.h"
#include "hopper/pass.h"

namespace collage {
namespace hopper {

/* Where the result goes, and what comes in besides the operands. Rows are dense. */
struct Result {
  void* output;
  const void* bias;
  const void* source;
  int rows, columns;
  int64_t batch_stride;
  EpilogueArguments epilogue;
};

/* Asks for the line that holds an address, and waits for nothing. */
__device__ __forceinline__ void bring_near(const void* address) {
#ifdef __CUDA_ARCH__
  asm volatile("prefetch.global.L1 [%0];" ::"l"(address));
#endif
}

/* The bias of 16 of a thread's numbers: pairs of columns, each for two rows. */
struct BiasOfPairs {
  float values[8];
  __device__ __forceinline__ float operator[](int i) const { return values[i / 4 * 2 + i % 2]; }
};

template <class Config>
class Rows {
 public:
  using Element = typename Config::Element;
  static constexpr int kParts = Config::kColumns / 64;

  /* `pass`: 2 KiB of the warp's own. */
  __device__ Rows(const Result& result, unsigned char* pass, int row, int column, int batch)
      : result_(result),
        pass_(pass),
        row_(row),
        column_(column),
        start_(batch * result.batch_stride + int64_t{row} * result.columns + column),
        is_wide_(result.columns % 8 == 0) {}

  /* Has the bias brought near, before the products. */
  __device__ __forceinline__ void announce() const {
    const int column = column_ + threadIdx.x % 32 * 64;
    if (result_.bias == nullptr || column >= column_ + Config::kColumns) return;
    if (column >= result_.columns) return;
    bring_near(static_cast<const Element*>(result_.bias) + column);
  }

  /* Asks for the first columns of the residual, while the last products are under way. */
  __device__ __forceinline__ void fetch_first() {
    if constexpr (Config::kSource) fetch(0);
  }

  __device__ __forceinline__ void finish(float (&sums)[Config::kColumns / 2]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      __syncwarp();
      if constexpr (Config::kSource) {
        put_fetched(part);
        if (part + 1 < kParts) fetch(part + 1);
        __syncwarp();
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float* x = sums + 32 * part + 16 * half;
        uint32_t* places[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) places[i] = passed_pair(pass_, 8 * half + i);
        before_residual<Config::kHeavy, false, 16>(result_.epilogue, x,
                                                   bias_from(64 * part + 32 * half + lane % 4 * 2));
        if constexpr (Config::kSource) {
          float other[16];
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            unpack<Element>(*places[i], other + 2 * i);
          }
          residual<Config::kHeavy, false, 16>(result_.epilogue, x, other);
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          *places[i] = packed<Element>(x[2 * i], x[2 * i + 1]);
        }
      }
      __syncwarp();
      store(part);
    }
  }

 private:
  const Result& result_;
  unsigned char* pass_;
  int row_, column_;
  int64_t start_;
  bool is_wide_;
  uint4 fetched_[Config::kSource ? 4 : 1];

  __device__ __forceinline__ BiasOfPairs bias_from(int column) const {
    const Element* bias = static_cast<const Element*>(result_.bias);
    BiasOfPairs found;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int place = column_ + column + i / 2 * 8 + i % 2;
      found.values[i] = bias != nullptr && place < result_.columns ? to_float(bias[place]) : 0.0f;
    }
    return found;
  }

  __device__ __forceinline__ int rows_left() const { return result_.rows - row_; }

  /* Columns of a part that there are, in a row that there is. */
  __device__ __forceinline__ int left(int part) const {
    return result_.columns - column_ - 64 * part;
  }

  __device__ __forceinline__ void fetch(int part) {
    if (!is_wide_) return;
    const Element* from = static_cast<const Element*>(result_.source) + start_ + 64 * part;
    each_eight(pass_, result_.columns, rows_left(), left(part),
               [&](int i, uint4*, int64_t place) {
                 fetched_[i] = *reinterpret_cast<const uint4*>(from + place);
               });
  }

  __device__ __forceinline__ void put_fetched(int part) {
    if (is_wide_) {
      each_eight(pass_, result_.columns, rows_left(), left(part),
                 [&](int i, uint4* shared, int64_t) { *shared = fetched_[i]; });
      return;
    }
    const Element* from = static_cast<const Element*>(result_.source) + start_ + 64 * part;
    each_element(part, [&](Element* shared, int64_t place) { *shared = from[place]; });
  }

  __device__ __forceinline__ void store(int part) const {
    Element* to = static_cast<Element*>(result_.output) + start_ + 64 * part;
    if (is_wide_) {
      each_eight(pass_, result_.columns, rows_left(), left(part),
                 [&](int, const uint4* shared, int64_t place) {
                   *reinterpret_cast<uint4*>(to + place) = *shared;
                 });
      return;
    }
    each_element(part, [&](const Element* shared, int64_t place) { to[place] = *shared; });
  }

  /* Where rows do not begin at multiples of 16 bytes: single elements, side by side. */
  template <class Move>
  __device__ __forceinline__ void each_element(int part, Move move) const {
    const int lane = threadIdx.x % 32;
#pragma unroll 4
    for (int i = 0; i < 32; ++i) {
      const int row = i / 2, column = i % 2 * 32 + lane;
      if (row >= rows_left() || column >= left(part)) continue;
      move(reinterpret_cast<Element*>(passed(pass_, row, column / 8)) + column % 8,
           int64_t{row} * result_.columns + column);
    }
  }
};

}  // namespace hopper
}  // namespace collage

#endif /* COLLAGE_HOPPER_ROWS_H_ */
