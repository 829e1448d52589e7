// A convolution by tiles: batches of them, each in two stages that all threads share.
#pragma once

#include <omp.h>

#include <atomic>

#include "weights.h"

namespace collage_onednn::winograd {

// Every tile of the result. Dilated ones interleave, a grid of them for each of the first pixels.
inline std::vector<Tile> tiles_of(const Shape& s, int64_t results) {
  std::vector<Tile> tiles;
  const int64_t down = results * s.dilation[0], right = results * s.dilation[1];
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

// How a convolution is shared out. Where there are tiles enough, each thread takes batches of its
// own and waits for nobody; else all take one to its points, meet, and multiply blocks of results.
struct Sizes {
  bool alone;
  int64_t batch;   // tiles at once
  int64_t piece;   // of them, what one thread multiplies at once
  int64_t apart;   // numbers from a batch at one point to the next: not in the same lines
  int64_t points;  // numbers of all batches at all points
  int64_t sums;    // numbers of one thread's products
};

template <class K>
inline int64_t blocks_of(const Shape& s) {
  return s.groups * parts_of(s.made / s.groups, K::kColumns);
}

template <class K>
inline Sizes sizes_of(const Shape& s, int64_t tiles, int64_t threads) {
  constexpr int64_t points = K::kPoints * K::kPoints, few = 4 * K::kRows, most = 8 * K::kRows;
  // What is at its points is read once for each block of results, weights once for each batch: of
  // both some come from farther than second caches.
  const int64_t tile = points * s.channels * static_cast<int64_t>(sizeof(float));
  const int64_t fits = std::max(2 * second_cache_bytes() / tile, few);
  Sizes sizes;
  sizes.alone = threads == 1 || tiles >= 4 * threads * few;
  if (sizes.alone) {
    const int64_t turns = threads == 1 ? 1 : 4 * threads;
    sizes.batch = parts_of(tiles, parts_of(tiles, std::min(fits, std::max(few, tiles / turns))));
    sizes.piece = std::min(sizes.batch, most);
  } else {
    sizes.batch = parts_of(tiles, parts_of(tiles, threads * fits));
    // A few pieces for each thread, of whole sets of rows.
    const int64_t wanted = std::max<int64_t>(1, 4 * threads / blocks_of<K>(s));
    sizes.piece =
        std::min(most, parts_of(parts_of(sizes.batch, wanted), K::kRows) * K::kRows);
  }
  sizes.apart = sizes.batch * s.channels + kLine;
  sizes.points = points * sizes.apart * (sizes.alone ? threads : 1);
  sizes.sums = points * sizes.piece * K::kColumns;
  return sizes;
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

template <class K>
inline void convolve_alone(const Work& w, int64_t tiles, const Sizes& sizes, float* sums) {
  const int64_t blocks = blocks_of<K>(w.shape);
  const int64_t points = K::kPoints * K::kPoints * sizes.apart;
  deal_out(parts_of(tiles, sizes.batch), [&](int64_t i, int64_t thread) {
    const int64_t first = i * sizes.batch, count = std::min(sizes.batch, tiles - first);
    Work mine = w;
    mine.points += thread * points;
    for (int64_t tile = 0; tile < count; ++tile) K::take(mine, first, tile, 0, w.shape.channels);
    for (int64_t block = 0; block < blocks; ++block)
      for (int64_t begin = 0; begin < count; begin += sizes.piece)
        K::multiply(mine, first, begin, std::min(count, begin + sizes.piece), block,
                    sums + thread * sizes.sums);
  });
}

template <class K>
inline void convolve_together(const Work& w, int64_t tiles, const Sizes& sizes, float* sums) {
  const int64_t channels = w.shape.channels, blocks = blocks_of<K>(w.shape);
  constexpr int64_t part = 8 * K::kVector;
  const int64_t parts = parts_of(channels, part);
  for (int64_t first = 0; first < tiles; first += sizes.batch) {
    const int64_t count = std::min(sizes.batch, tiles - first);
    const int64_t pieces = parts_of(count, sizes.piece);
    deal_out(count * parts, [&](int64_t i, int64_t) {
      const int64_t from = i % parts * part;
      K::take(w, first, i / parts, from, std::min(channels, from + part));
    });
    deal_out(blocks * pieces, [&](int64_t i, int64_t thread) {
      const int64_t begin = i % pieces * sizes.piece;
      K::multiply(w, first, begin, std::min(count, begin + sizes.piece), i / pieces,
                  sums + thread * sizes.sums);
    });
  }
}

template <class K>
inline void convolve(const Work& w, int64_t tiles, const Sizes& sizes, float* sums) {
  sizes.alone ? convolve_alone<K>(w, tiles, sizes, sums)
              : convolve_together<K>(w, tiles, sizes, sums);
}

}  // namespace collage_onednn::winograd
