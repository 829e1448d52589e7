/* What becomes of a warp's 16 rows of sums: bias, activation, residual, and where they go.
 *
 * A thread holds pairs of columns of two rows. So that each access to memory is to whole rows, the
 * warp passes 64 columns at a time through shared memory: what comes in, then what goes out.
 */
#ifndef COLLAGE_HOPPER_ROWS_H_
#define COLLAGE_HOPPER_ROWS_H_

#include <stdint.h>

#include "collage_activation.h"
#include "hopper/elements.h"

namespace collage {
namespace hopper {

/* Bytes of 64 elements, which is what the widest swizzle spans. */
constexpr int kRow = 128;

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
    const int lane = threadIdx.x % 32, own = lane / 4;
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
        unsigned char* places[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          places[i] = at(own + i % 2 * 8, 4 * half + i / 2) + lane % 4 * 4;
        }
        before_residual<Config::kHeavy, false, 16>(result_.epilogue, x,
                                                   bias_from(64 * part + 32 * half + lane % 4 * 2));
        if constexpr (Config::kSource) {
          float other[16];
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            unpack<Element>(*reinterpret_cast<uint32_t*>(places[i]), other + 2 * i);
          }
          residual<Config::kHeavy, false, 16>(result_.epilogue, x, other);
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          *reinterpret_cast<uint32_t*>(places[i]) = packed<Element>(x[2 * i], x[2 * i + 1]);
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

  /* Eight elements of a row; those of equal columns lie in different banks. */
  __device__ __forceinline__ unsigned char* at(int row, int eight) const {
    return pass_ + row * kRow + (eight ^ row % 8) * 16;
  }

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

  /* Columns of a part that there are, in a row that there is. */
  __device__ __forceinline__ int left(int part) const {
    return result_.columns - column_ - 64 * part;
  }

  __device__ __forceinline__ void fetch(int part) {
    if (!is_wide_) return;
    const int lane = threadIdx.x % 32;
    const Element* from = static_cast<const Element*>(result_.source) + start_ + 64 * part;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = 4 * i + lane / 8, column = lane % 8 * 8;
      if (row_ + row < result_.rows && column < left(part)) {
        fetched_[i] =
            *reinterpret_cast<const uint4*>(from + int64_t{row} * result_.columns + column);
      }
    }
  }

  __device__ __forceinline__ void put_fetched(int part) {
    const int lane = threadIdx.x % 32;
    if (is_wide_) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        *reinterpret_cast<uint4*>(at(4 * i + lane / 8, lane % 8)) = fetched_[i];
      }
      return;
    }
    const Element* from = static_cast<const Element*>(result_.source) + start_ + 64 * part;
    each_element(part, [&](Element* passed, int64_t place) { *passed = from[place]; });
  }

  __device__ __forceinline__ void store(int part) const {
    const int lane = threadIdx.x % 32;
    Element* to = static_cast<Element*>(result_.output) + start_ + 64 * part;
    if (is_wide_) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 4 * i + lane / 8, column = lane % 8 * 8;
        const uint4 eight = *reinterpret_cast<const uint4*>(at(row, lane % 8));
        if (row_ + row < result_.rows && column < left(part)) {
          *reinterpret_cast<uint4*>(to + int64_t{row} * result_.columns + column) = eight;
        }
      }
      return;
    }
    each_element(part, [&](const Element* passed, int64_t place) { to[place] = *passed; });
  }

  /* Where rows do not begin at multiples of 16 bytes: single elements, side by side. */
  template <class Move>
  __device__ __forceinline__ void each_element(int part, Move move) const {
    const int lane = threadIdx.x % 32;
#pragma unroll 4
    for (int i = 0; i < 32; ++i) {
      const int row = i / 2, column = i % 2 * 32 + lane;
      if (row_ + row >= result_.rows || column >= left(part)) continue;
      move(reinterpret_cast<Element*>(at(row, column / 8)) + column % 8,
           int64_t{row} * result_.columns + column);
    }
  }
};

}  // namespace hopper
}  // namespace collage

#endif /* COLLAGE_HOPPER_ROWS_H_ */
