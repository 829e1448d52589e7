/* Which tiles of the result a thread block computes, one after the other. */
#ifndef COLLAGE_HOPPER_TURNS_H_
#define COLLAGE_HOPPER_TURNS_H_

#include <cuda_runtime.h>
#include <stdint.h>

namespace collage {
namespace hopper {

/* Divides numbers of 31 bits by one that is known at the launch, without a division: by the next
 * larger multiple of 2^-shift (Granlund and Montgomery, PLDI 1994). */
class Divisor {
 public:
  Divisor() = default;

  __host__ __device__ explicit Divisor(int by) : by_(by) {
    int bits = 0;
    while (bits < 31 && (1u << bits) < static_cast<unsigned>(by)) ++bits;
    if (bits == 0) return;
    shift_ = bits - 1;
    multiplier_ = static_cast<uint32_t>(((uint64_t{1} << (31 + bits)) + by - 1) / by);
  }

  __host__ __device__ void divide(int number, int* quotient, int* rest) const {
    *quotient = multiplier_ == 0
                    ? number
                    : static_cast<int>((uint64_t{multiplier_} * static_cast<uint32_t>(number) >>
                                        32) >> shift_);
    *rest = number - *quotient * by_;
  }

  __host__ __device__ int by() const { return by_; }

 private:
  int by_ = 1, shift_ = 0;
  uint32_t multiplier_ = 0;
};

/* All tiles, in the order in which they are computed: in bands of some rows of tiles, along columns
 * within each, so that those computed at the same time share operands in the cache. */
struct Tiles {
  Divisor whole, band, height, last_height;
  int all = 0, last_band = 0;

  Tiles() = default;

  Tiles(int rows, int columns, int batch) : all(rows * columns * batch) {
    constexpr int kMost = 16;
    const int bands = (rows - 1) / kMost + 1, high = rows < kMost ? rows : kMost;
    last_band = bands - 1;
    whole = Divisor(rows * columns);
    band = Divisor(high * columns);
    height = Divisor(high);
    last_height = Divisor(rows - last_band * high);
  }
};

/* A tile's first row and column, and its matrix. */
struct Corner {
  int row, column, batch;
};

/* A block takes each of its tiles so many after the one before as there are blocks. */
template <class Config>
class Turn {
 public:
  __device__ explicit Turn(const Tiles& tiles)
      : tiles_(tiles), at_(static_cast<int>(blockIdx.x)) {}

  __device__ bool is_over() const { return at_ >= tiles_.all; }
  __device__ void next() { at_ += static_cast<int>(gridDim.x); }

  __device__ Corner corner() const {
    int batch, of_matrix, band, of_band, column, row;
    tiles_.whole.divide(at_, &batch, &of_matrix);
    tiles_.band.divide(of_matrix, &band, &of_band);
    const Divisor& height = band == tiles_.last_band ? tiles_.last_height : tiles_.height;
    height.divide(of_band, &column, &row);
    row += band * tiles_.height.by();
    return {row * Config::kRows, column * Config::kColumns, batch};
  }

 private:
  const Tiles& tiles_;
  int at_;
};

}  // namespace hopper
}  // namespace collage

#endif /* COLLAGE_HOPPER_TURNS_H_ */
