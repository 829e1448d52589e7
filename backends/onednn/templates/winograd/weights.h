// Weights at the points of tiles: computed once, with more digits than they are kept in.
#pragma once

#include <omp.h>

#include "winograd.h"

namespace collage_onednn::winograd {

// Three taps at the points of tiles with two or four results; scaled as transforms.h leaves it.
inline void taps_at_points(int64_t results, const double (&g)[3], double* at) {
  auto value = [&](double x) { return g[0] + x * (g[1] + x * g[2]); };
  if (results == 2) {
    at[0] = g[0];
    at[1] = value(1) / 2;
    at[2] = value(-1) / 2;
    at[3] = g[2];
    return;
  }
  const double a = kNear, b = kFar, a2 = a * a, b2 = b * b;
  const double near = 2 * a2 * (a2 - b2), far = 2 * b2 * (b2 - a2);
  at[0] = g[0] / (a2 * b2);
  at[1] = value(a) / near;
  at[2] = value(-a) / near;
  at[3] = value(b) / far;
  at[4] = value(-b) / far;
  at[5] = g[2];
}

// From row-major weights, for each block of `columns` results: points, channels, results.
inline void pack_weights(const Shape& s, int64_t results, int64_t columns, const float* weights,
                         float* packed) {
  const int64_t n = results + 2, depth = s.channels / s.groups, made = s.made / s.groups;
#pragma omp parallel for
  for (int64_t k = 0; k < s.made; ++k) {
    const int64_t place = k % made / columns * columns;
    const int64_t width = std::min(columns, made - place);
    float* block = packed + n * n * depth * (k / made * made + place) + k % made - place;
    for (int64_t c = 0; c < depth; ++c) {
      const float* g = weights + (k * depth + c) * 9;
      double rows[3][6], column[6];
      for (int i = 0; i < 3; ++i)
        taps_at_points(results, {g[3 * i], g[3 * i + 1], g[3 * i + 2]}, rows[i]);
      for (int64_t j = 0; j < n; ++j) {
        taps_at_points(results, {rows[0][j], rows[1][j], rows[2][j]}, column);
        for (int64_t i = 0; i < n; ++i)
          block[((i * n + j) * depth + c) * width] = static_cast<float>(column[i]);
      }
    }
  }
}

}  // namespace collage_onednn::winograd
