// Convolutions with three by three taps and steps of one pixel, by Winograd's algorithm: in vectors
// of ours, as wide as the processor has them. oneDNN of 2023 has it for no processor with AVX2.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "../vectors/vectors.h"

namespace collage_onednn::winograd {

// How the channels and pixels of a tensor lie: in blocks of channels, or channels last.
struct Strides {
  int64_t image, block, width, row, pixel;  // `width` channels of a block lie side by side
  int64_t channel(int64_t c) const { return c / width * block + c % width; }
};

struct Shape {
  int64_t images, channels, height, width;  // of the picture
  int64_t made, rows, columns;              // channels and pixels of the result
  int64_t groups;
  int64_t padding[2], dilation[2];
};

// Where a tile's first result is.
struct Tile {
  int64_t image, row, column;
};

struct Step {
  enum Kind { addition, relu, leaky, clip } kind;
  float alpha, beta;
  const float* other;  // of an addition
};

struct Following {
  static constexpr int kMost = 4;
  int count = 0;
  Step steps[kMost];
};

struct Work {
  Shape shape;
  Strides from, to;
  const Tile* tiles;
  int64_t batch;  // tiles that are at their points at once
  int64_t apart;  // numbers from a batch at one point to the same at the next
  const float *x, *weights, *bias;
  float *y, *points;
  Following following;
};

constexpr float kNear = 0.625f, kFar = 1.5f;  // Four's points

#ifdef COLLAGE_AVX512
#define COLLAGE_LANES COLLAGE_AVX2
namespace avx2 {
using namespace collage_onednn::avx2;
#include "transforms.h"
#include "products.h"
#include "tiles.h"
#include "stages.h"
}  // namespace avx2
#undef COLLAGE_LANES
#undef COLLAGE_WITHIN

#define COLLAGE_LANES COLLAGE_AVX512
namespace avx512 {
using namespace collage_onednn::avx512;
#include "transforms.h"
#include "products.h"
#include "tiles.h"
#include "stages.h"
}  // namespace avx512
#undef COLLAGE_LANES
#undef COLLAGE_WITHIN
#endif

}  // namespace collage_onednn::winograd
