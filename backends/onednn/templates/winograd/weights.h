// Weights at the points of tiles: computed once, with more digits than they are kept in.
#pragma once

#include <omp.h>

#include "winograd.h"

namespace collage_onednn::winograd {

template <int64_t columns>
using Column = double[columns];  // a number for each result of a block

// Three taps at the points of tiles with two or four results; scaled as transforms.h leaves it.
template <int64_t results, int64_t columns>
inline void taps_at_points(const Column<columns>& g0, const Column<columns>& g1,
                           const Column<columns>& g2, Column<columns>* at) {
  // x and -x are told apart by the middle tap alone.
  auto pair = [&](double x, double scale, Column<columns>& above, Column<columns>& below) {
    const double one = 1 / scale, two = x / scale, three = x * x / scale;
    for (int64_t i = 0; i < columns; ++i) {
      const double even = one * g0[i] + three * g2[i], odd = two * g1[i];
      above[i] = even + odd;
      below[i] = even - odd;
    }
  };
  const double a = kNear, b = kFar, a2 = a * a, b2 = b * b;
  const double first = results == 2 ? 1 : 1 / (a2 * b2);
  for (int64_t i = 0; i < columns; ++i) {
    at[0][i] = first * g0[i];
    at[results + 1][i] = g2[i];
  }
  if constexpr (results == 2) return pair(1, 2, at[1], at[2]);
  pair(a, 2 * a2 * (a2 - b2), at[1], at[2]);
  pair(b, 2 * b2 * (b2 - a2), at[3], at[4]);
}

// From row-major weights, for each block of results: points, taps along planes, channels, results.
template <class K>
inline void pack_weights(const Shape& s, const float* weights, float* packed) {
  constexpr int64_t n = K::kPoints, results = K::kResults, columns = K::kColumns;
  const int64_t depth = s.channels / s.groups, made = s.made / s.groups;
  const int64_t blocks = (made + columns - 1) / columns, planes = s.planes.taps;
#pragma omp parallel for
  for (int64_t block = 0; block < s.groups * blocks; ++block) {
    const int64_t place = block % blocks * columns, begin = block / blocks * made + place;
    const int64_t width = std::min(columns, made - place);
    float* to = packed + n * n * planes * depth * begin;
    Column<columns> taps[3][3] = {}, rows[3][n], column[n];
    for (int64_t place_of_tap = 0; place_of_tap < planes * depth; ++place_of_tap) {
      const int64_t plane = place_of_tap / depth, c = place_of_tap % depth;
      for (int64_t i = 0; i < width; ++i)
        for (int64_t tap = 0; tap < 9; ++tap)
          taps[tap / 3][tap % 3][i] =
              weights[(((begin + i) * depth + c) * planes + plane) * 9 + tap];
      for (int i = 0; i < 3; ++i)
        taps_at_points<results, columns>(taps[i][0], taps[i][1], taps[i][2], rows[i]);
      for (int64_t j = 0; j < n; ++j) {
        taps_at_points<results, columns>(rows[0][j], rows[1][j], rows[2][j], column);
        for (int64_t i = 0; i < n; ++i)
          for (int64_t k = 0; k < width; ++k)
            to[((i * n + j) * planes * depth + place_of_tap) * width + k] =
                static_cast<float>(column[i][k]);
      }
    }
  }
}

}  // namespace collage_onednn::winograd
