// Kernels for one kind of tiles, in vectors of one width.
#pragma once

#include "../linkage.h"
#include "winograd.h"

namespace collage_onednn::winograd {

constexpr int64_t kMostTaps = 5, kMostPoints = 6;  // along an axis

struct Axis {
  int64_t taps, results, points;
};

struct Kernels {
  Axis down, right;
  int64_t vector;     // numbers of one
  int64_t block;      // channels of the result that are multiplied together
  int64_t most_rows;  // whose sums stay in registers
  // To points, from row-major weights.
  void (*pack)(const Kernels& kernels, const Shape& s, const float* weights, float* packed);
  // The two stages of a batch: stages.h.
  void (*take)(const Work& w, const Batch& batch, int64_t slot, int64_t tile, int64_t from,
               int64_t to);
  void (*multiply)(const Work& w, const Batch& batch, int64_t begin, int64_t end, int64_t block,
                   float* sums);
  int64_t points() const { return down.points * right.points; }
};

// Of tiles with so many rows of results.
namespace avx2 {
COLLAGE_WEAK const Kernels& kernels_of(const Shape& s, int64_t rows);
}
namespace avx512 {
COLLAGE_WEAK const Kernels& kernels_of(const Shape& s, int64_t rows);
}

}  // namespace collage_onednn::winograd
