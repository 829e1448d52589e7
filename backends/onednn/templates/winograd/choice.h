// Which convolutions are worth it, and with what tiles: by what was measured of their parts.
#pragma once

#include "run.h"

namespace collage_onednn::winograd {

inline int64_t tiles_along(int64_t extent, int64_t results, int64_t dilation) {
  const int64_t all = extent / dilation, longer = extent % dilation;
  return longer * ((all + results) / results) +
         (dilation - longer) * ((all + results - 1) / results);
}

// What a convolution costs in products of one number, as one thread computes them beside others;
// with 0 results a tile, oneDNN's own kernel.
inline double cost_of(const Shape& s, int64_t results, int64_t threads, int64_t lanes) {
  // So many products are computed while a number of the weights comes from memory: 40 thousand
  // million a second, of eight lanes, beside 27 GB/s. Up to four threads read as fast each as one
  // alone, more of them share what four have.
  const double fetched = 4. * static_cast<double>(lanes) / 8 *
                         std::max(1., static_cast<double>(threads) / 4);
  // A channel of a tile taken to one of its points, or back from it.
  constexpr double transformed = 10;
  const double pairs = static_cast<double>(s.channels / s.groups * s.made);
  if (results == 0)
    return 9 * pairs * (static_cast<double>(s.images * s.rows * s.columns) + fetched);
  const double tiles = static_cast<double>(s.images * tiles_along(s.rows, results, s.dilation[0]) *
                                           tiles_along(s.columns, results, s.dilation[1]));
  const double points = static_cast<double>((results + 2) * (results + 2));
  return points * (pairs * (tiles + fetched) +
                   transformed * tiles * static_cast<double>(s.channels + s.made));
}

// Results of a tile along an axis; 0 where oneDNN's own kernel is the better one.
inline int64_t results_of_tiles(const Shape& s, int64_t threads, int64_t lanes) {
  constexpr double worth = 0.85;
  if (s.channels / s.groups % lanes || s.made / s.groups % lanes) return 0;
  const double least = worth * cost_of(s, 0, threads, lanes);
  const double two = cost_of(s, 2, threads, lanes), four = cost_of(s, 4, threads, lanes);
  if (std::min(two, four) > least) return 0;
  // Weights of tiles with two results take less than half the memory and round less.
  return four < worth * two ? 4 : 2;
}

}  // namespace collage_onednn::winograd
