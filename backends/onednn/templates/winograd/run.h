// A convolution by tiles: batches of them, each in two stages that all threads share.
#pragma once

#include <omp.h>

#include <atomic>

#include "kernels.h"
#include "planes.h"

namespace collage_onednn::winograd {

// Every tile of the result's planes. Dilated ones interleave, a grid of them for each of the first
// pixels.
inline std::vector<Tile> tiles_of(const Kernels& k, const Shape& s) {
  std::vector<Tile> tiles;
  const int64_t down = k.down.results * s.dilation[0];
  const int64_t right = k.right.results * s.dilation[1];
  for (int64_t image = 0; image < s.images; ++image)
    for (int64_t top = 0; top < s.rows; top += down)
      for (int64_t row = top; row < std::min(s.rows, top + s.dilation[0]); ++row)
        for (int64_t left = 0; left < s.columns; left += right)
          for (int64_t column = left; column < std::min(s.columns, left + s.dilation[1]); ++column)
            tiles.push_back({image, row, column});
  return tiles;
}

constexpr int64_t kLine = 16;  // numbers of a cache's line

inline int64_t parts_of(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

// Of the longest equal parts of at most `most`.
inline int64_t even_part(int64_t whole, int64_t most) {
  return parts_of(whole, parts_of(whole, std::max<int64_t>(1, most)));
}

// How a convolution is shared out. Where there are rows enough, each thread takes batches of its
// own and waits for nobody; else all take one to its points, meet, and multiply blocks of results.
struct Sizes {
  bool alone;
  int64_t tiles, planes;  // of a batch
  int64_t piece;          // rows of a batch that one thread multiplies at once
  int64_t apart;          // numbers from a batch at one point to the next: not in the same lines
  int64_t points;         // numbers of all batches at all points
  int64_t sums;           // numbers of one thread's products
};

inline int64_t blocks_of(const Kernels& k, const Shape& s) {
  return s.groups * parts_of(s.made / s.groups, k.block);
}

inline Sizes sizes_of(const Kernels& k, const Shape& s, int64_t tiles, int64_t threads) {
  const int64_t points = k.points(), few = 4 * k.most_rows, most = 8 * k.most_rows;
  // What is at its points is read once for each block of results, weights once for each batch.
  // Where those fit, both stay in a second cache; else some of both come from farther.
  const int64_t tile = points * s.channels * static_cast<int64_t>(sizeof(float));
  const int64_t weights = tile * s.planes.taps * s.made / s.groups, cache = second_cache_bytes();
  const int64_t fits = std::max((2 * weights <= cache ? cache / 2 : 2 * cache) / tile, few);
  const int64_t rows = tiles * s.planes.made;
  Sizes sizes;
  sizes.alone = threads == 1 || rows >= 4 * threads * few;
  const int64_t turns = sizes.alone && threads > 1 ? 4 * threads : 1;
  const int64_t wanted =
      sizes.alone ? std::min(fits, std::max(few, rows / turns)) : threads * fits;
  // Planes that are read for those of two batches are taken to their points twice.
  sizes.planes = even_part(s.planes.made, wanted);
  sizes.tiles = even_part(tiles, wanted / sizes.planes);
  const int64_t batch = sizes.tiles * sizes.planes;
  if (sizes.alone) {
    sizes.piece = std::min(batch, most);
  } else {
    // A few pieces for each thread, of whole sets of rows.
    const int64_t pieces = std::max<int64_t>(1, 4 * threads / blocks_of(k, s));
    sizes.piece = std::min(most, parts_of(parts_of(batch, pieces), k.most_rows) * k.most_rows);
  }
  const auto slots = static_cast<int64_t>(reading_of(s.planes, sizes.planes).offsets.size());
  sizes.apart = slots * sizes.tiles * s.channels + kLine;
  sizes.points = points * sizes.apart * (sizes.alone ? threads : 1);
  sizes.sums = points * sizes.piece * k.block;
  return sizes;
}

inline int64_t batches_of(const Work& w, int64_t tiles, const Sizes& sizes) {
  return parts_of(tiles, sizes.tiles) * parts_of(w.shape.planes.made, sizes.planes);
}

inline Batch batch_at(const Work& w, int64_t tiles, const Sizes& sizes, int64_t i) {
  const int64_t deep = parts_of(w.shape.planes.made, sizes.planes);
  const int64_t tile = i / deep * sizes.tiles, plane = i % deep * sizes.planes;
  return {tile, std::min(sizes.tiles, tiles - tile), plane,
          std::min(sizes.planes, w.shape.planes.made - plane)};
}

// Calls `function` with each of so many pieces of work and the number of the thread that took it.
// Dealt out here: our threads have no loops of OpenMP's that are, and need not all have come.
template <class Function>
inline void deal_out(int64_t count, const Function& function) {
  std::atomic<int64_t> next{0};
#pragma omp parallel
  {
    const int64_t thread = omp_get_thread_num();
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;)
      function(i, thread);
  }
}

inline void convolve_alone(const Kernels& k, const Work& w, int64_t tiles, const Sizes& sizes, float* sums) {
  const int64_t blocks = blocks_of(k, w.shape);
  const int64_t points = k.points() * sizes.apart;
  deal_out(batches_of(w, tiles, sizes), [&](int64_t i, int64_t thread) {
    const Batch batch = batch_at(w, tiles, sizes, i);
    Work mine = w;
    mine.points += thread * points;
    for (const int64_t slot : w.reading->slots)
      for (int64_t tile = 0; tile < batch.tiles; ++tile)
        k.take(mine, batch, slot, tile, 0, w.shape.channels);
    for (int64_t block = 0; block < blocks; ++block)
      for (int64_t begin = 0; begin < batch.rows(); begin += sizes.piece)
        k.multiply(mine, batch, begin, std::min(batch.rows(), begin + sizes.piece), block,
                    sums + thread * sizes.sums);
  });
}

inline void convolve_together(const Kernels& k, const Work& w, int64_t tiles, const Sizes& sizes, float* sums) {
  const int64_t channels = w.shape.channels, blocks = blocks_of(k, w.shape);
  const int64_t part = 8 * k.vector;
  const int64_t parts = parts_of(channels, part);
  const auto slots = static_cast<int64_t>(w.reading->slots.size());
  for (int64_t b = 0; b < batches_of(w, tiles, sizes); ++b) {
    const Batch batch = batch_at(w, tiles, sizes, b);
    const int64_t pieces = parts_of(batch.rows(), sizes.piece);
    deal_out(slots * batch.tiles * parts, [&](int64_t i, int64_t) {
      const int64_t from = i % parts * part, place = i / parts;
      k.take(w, batch, w.reading->slots[static_cast<size_t>(place / batch.tiles)],
              place % batch.tiles, from, std::min(channels, from + part));
    });
    deal_out(blocks * pieces, [&](int64_t i, int64_t thread) {
      const int64_t begin = i % pieces * sizes.piece;
      k.multiply(w, batch, begin, std::min(batch.rows(), begin + sizes.piece), i / pieces,
                  sums + thread * sizes.sums);
    });
  }
}

inline void convolve(const Kernels& k, const Work& w, int64_t tiles, const Sizes& sizes, float* sums) {
  sizes.alone ? convolve_alone(k, w, tiles, sizes, sums)
              : convolve_together(k, w, tiles, sizes, sums);
}

}  // namespace collage_onednn::winograd
