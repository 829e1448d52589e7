// Convolutions with three or five taps along an axis or two, and steps of one pixel there, by
// Winograd's algorithm: in vectors of ours, as wide as the processor has them. oneDNN of 2023 has
// it for no processor with AVX2.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace collage_onednn::winograd {

// How the channels and pixels of a tensor lie: in blocks of channels, or channels last.
struct Strides {
  int64_t image, block, width;  // `width` channels of a block lie side by side
  int64_t plane, row, pixel;
  int64_t channel(int64_t c) const { return c / width * block + c % width; }
};

// Of volumes, and along them: the products of all taps are added up. Pictures have one of each.
struct Planes {
  int64_t read, made;  // of the volume, and of the result
  int64_t taps, step, dilation, padding;
};

struct Shape {
  int64_t images, channels, height, width;  // of the picture
  int64_t made, rows, columns;              // channels and pixels of the result
  int64_t groups;
  int64_t taps[2], padding[2], dilation[2];  // along rows and columns
  Planes planes;
};

// Where a tile's first result is, in each plane.
struct Tile {
  int64_t image, row, column;
};

// Tiles and planes of the result that are at their points at once: rows of matrices, those of a
// plane one after the other.
struct Batch {
  int64_t tile, tiles, plane, planes;
  int64_t rows() const { return tiles * planes; }
};

// Planes that a batch reads, as they lie at their points.
struct Reading {
  std::vector<int64_t> slots;    // that are read by any tap
  std::vector<int64_t> offsets;  // of every slot: its plane, from where the batch's first one is
  std::vector<int64_t> firsts;   // of every tap: the slot that the batch's first plane reads
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
  const Reading* reading;
  int64_t apart;  // numbers from a batch at one point to the same at the next
  const float *x, *weights, *bias;
  float *y, *points;
  Following following;
};

inline int64_t floor_of(int64_t x, int64_t divisor) {
  return x >= 0 ? x / divisor : -((divisor - 1 - x) / divisor);
}

struct Range {
  int64_t begin, end;
};

// The planes of a batch, from its first, that a tap sees a plane of the volume from; the others
// see padding.
inline Range planes_seen(const Planes& p, const Batch& batch, int64_t tap) {
  const int64_t before = p.padding - tap * p.dilation;
  const int64_t begin = -floor_of(-before, p.step), end = floor_of(p.read - 1 + before, p.step) + 1;
  return {std::max<int64_t>(0, begin - batch.plane), std::min(batch.planes, end - batch.plane)};
}

constexpr float kNear = 0.625f, kFar = 1.5f;  // points of six

}  // namespace collage_onednn::winograd
