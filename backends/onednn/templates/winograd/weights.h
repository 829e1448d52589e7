// Weights at the points of tiles: computed once, with more digits than they are kept in.
#pragma once

#include <omp.h>

#include "kernels.h"

namespace collage_onednn::winograd {

template <int64_t columns>
using Column = double[columns];  // a number for each result of a block

// Taps at the points of an axis of tiles; scaled as transforms.h leaves it.
template <int64_t columns>
inline void taps_at_points(const Axis& axis, const Column<columns>* taps, Column<columns>* at) {
  // x and -x are told apart by the taps between.
  auto pair = [&](double x, double scale, Column<columns>& above, Column<columns>& below) {
    Column<columns> even = {}, odd = {};
    for (int64_t k = axis.taps - 1; k >= 0; --k) {
      Column<columns>& sum = k % 2 ? odd : even;
      for (int64_t i = 0; i < columns; ++i) sum[i] = taps[k][i] + x * x * sum[i];
    }
    for (int64_t i = 0; i < columns; ++i) {
      above[i] = (even[i] + x * odd[i]) / scale;
      below[i] = (even[i] - x * odd[i]) / scale;
    }
  };
  const double a = kNear, b = kFar, a2 = a * a, b2 = b * b;
  const double first = axis.points == 6 ? 1 / (a2 * b2) : 1;
  for (int64_t i = 0; i < columns; ++i) {
    at[0][i] = first * taps[0][i];
    at[axis.points - 1][i] = taps[axis.taps - 1][i];
  }
  if (axis.points == 4) pair(1, 2, at[1], at[2]);
  if (axis.points == 6) {
    pair(a, 2 * a2 * (a2 - b2), at[1], at[2]);
    pair(b, 2 * b2 * (b2 - a2), at[3], at[4]);
  }
}

// From row-major weights, for each block of results: points, taps along planes, channels, results.
template <int64_t width_of_block>
inline void pack_weights(const Kernels& kernels, const Shape& s, const float* weights,
                         float* packed) {
  const Axis &down = kernels.down, &right = kernels.right;
  const int64_t n = down.points, m = right.points, taps = down.taps * right.taps;
  const int64_t depth = s.channels / s.groups, made = s.made / s.groups;
  const int64_t blocks = (made + width_of_block - 1) / width_of_block, planes = s.planes.taps;
#pragma omp parallel for
  for (int64_t block = 0; block < s.groups * blocks; ++block) {
    const int64_t place = block % blocks * width_of_block, begin = block / blocks * made + place;
    const int64_t width = std::min(width_of_block, made - place);
    float* to = packed + n * m * planes * depth * begin;
    // Columns of taps at points of rows, then rows at points of columns.
    using Numbers = Column<width_of_block>;
    Numbers row[kMostTaps] = {}, rows[kMostTaps][kMostPoints], column[kMostTaps], at[kMostPoints];
    for (int64_t summand = 0; summand < planes * depth; ++summand) {
      const int64_t plane = summand / depth, c = summand % depth;
      for (int64_t i = 0; i < down.taps; ++i) {
        for (int64_t j = 0; j < right.taps; ++j)
          for (int64_t k = 0; k < width; ++k)
            row[j][k] =
                weights[(((begin + k) * depth + c) * planes + plane) * taps + i * right.taps + j];
        taps_at_points<width_of_block>(right, row, rows[i]);
      }
      for (int64_t j = 0; j < m; ++j) {
        for (int64_t i = 0; i < down.taps; ++i)
          for (int64_t k = 0; k < width_of_block; ++k) column[i][k] = rows[i][j][k];
        taps_at_points<width_of_block>(down, column, at);
        for (int64_t i = 0; i < n; ++i)
          for (int64_t k = 0; k < width; ++k)
            to[((i * m + j) * planes * depth + summand) * width + k] =
                static_cast<float>(at[i][k]);
      }
    }
  }
}

}  // namespace collage_onednn::winograd
