// Which convolutions are worth it, and with what tiles: by what was measured of their parts.
#pragma once

#include "run.h"

namespace collage_onednn::winograd {

// Results of a tile along rows and columns; none where it is oneDNN's own kernel.
struct Tiling {
  int64_t rows = 0, columns = 0;
};

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

// What a convolution costs in products of one number, as one thread computes them beside others.
inline double cost_of(const Shape& s, const Tiling& t, int64_t threads, int64_t lanes) {
  // So many products are computed while a number of the weights comes from memory: 40 thousand
  // million a second, of eight lanes, beside 27 GB/s. Up to four threads read as fast each as one
  // alone, more of them share what four have.
  const double fetched = 4. * static_cast<double>(lanes) / 8 *
                         std::max(1., static_cast<double>(threads) / 4);
  // A channel of a tile taken to one of its points, or back from it: of few points each takes more.
  const double transformed = s.taps[0] == 1 || s.taps[1] == 1 ? 20 : 10;
  const double pairs = static_cast<double>(s.channels / s.groups * s.made);
  const double planes = static_cast<double>(pairs_of_planes(s.planes));
  const double weights = fetched * static_cast<double>(s.planes.taps);
  if (t.rows == 0)
    return static_cast<double>(s.taps[0] * s.taps[1]) * pairs *
           (static_cast<double>(s.images * s.rows * s.columns) * planes + weights);
  const double tiles = static_cast<double>(s.images * tiles_along(s.rows, t.rows, s.dilation[0]) *
                                           tiles_along(s.columns, t.columns, s.dilation[1]));
  const double points =
      static_cast<double>((t.rows + s.taps[0] - 1) * (t.columns + s.taps[1] - 1));
  const auto read = reading_of(s.planes, s.planes.made).slots.size();
  const double taken = static_cast<double>(s.channels) *
                           std::min(static_cast<double>(read), static_cast<double>(s.planes.read)) +
                       static_cast<double>(s.made * s.planes.made);
  return points * (pairs * (tiles * planes + weights) + transformed * tiles * taken);
}

// The tiles that there are kernels of, the smallest first; see kernels_of.
inline std::vector<Tiling> tilings_of(const Shape& s) {
  const int64_t rows = s.taps[0], columns = s.taps[1];
  if (rows == 3 && columns == 3) return {{2, 2}, {4, 4}};
  if (rows == 5 && columns == 5) return {{2, 2}};
  if (rows == 1 && (columns == 3 || columns == 5)) return {{1, columns == 3 ? 4 : 2}};
  if (columns == 1 && (rows == 3 || rows == 5)) return {{rows == 3 ? 4 : 2, 1}};
  return {};
}

inline Tiling tiling_of(const Shape& s, int64_t threads, int64_t lanes) {
  constexpr double worth = 0.85;
  Tiling best;
  if (s.channels / s.groups % lanes || s.made / s.groups % lanes) return best;
  // Smaller tiles take less memory for weights and round less.
  double least = cost_of(s, best, threads, lanes);
  for (const Tiling& tiling : tilings_of(s)) {
    const double cost = cost_of(s, tiling, threads, lanes);
    if (cost >= worth * least) continue;
    best = tiling;
    least = cost;
  }
  return best;
}

}  // namespace collage_onednn::winograd
