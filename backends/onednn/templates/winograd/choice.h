// Which convolutions are worth it, and with what tiles: by what was measured of their parts.
#pragma once

#include "run.h"

namespace collage_onednn::winograd {

inline int64_t tiles_along(int64_t extent, int64_t results, int64_t dilation) {
  const int64_t all = extent / dilation, longer = extent % dilation;
  return longer * ((all + results) / results) +
         (dilation - longer) * ((all + results - 1) / results);
}

// Pairs of planes, of the volume and of the result, that some tap along planes is between.
inline int64_t pairs_of_planes(const Planes& p) {
  int64_t pairs = 0;
  for (int64_t tap = 0; tap < p.taps; ++tap) {
    const Range seen = planes_seen(p, {0, 1, 0, p.made}, tap);
    pairs += std::max<int64_t>(0, seen.end - seen.begin);
  }
  return pairs;
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
  const double planes = static_cast<double>(pairs_of_planes(s.planes));
  const double weights = fetched * static_cast<double>(s.planes.taps);
  if (results == 0)
    return 9 * pairs * (static_cast<double>(s.images * s.rows * s.columns) * planes + weights);
  const double tiles = static_cast<double>(s.images * tiles_along(s.rows, results, s.dilation[0]) *
                                           tiles_along(s.columns, results, s.dilation[1]));
  const double points = static_cast<double>((results + 2) * (results + 2));
  const auto read = reading_of(s.planes, s.planes.made).slots.size();
  const double taken = static_cast<double>(s.channels) *
                           std::min(static_cast<double>(read), static_cast<double>(s.planes.read)) +
                       static_cast<double>(s.made * s.planes.made);
  return points * (pairs * (tiles * planes + weights) + transformed * tiles * taken);
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
