// Weights at the points of tiles: computed once, with more digits than they are kept in.
#pragma once

#include <omp.h>

#include "kernels.h"

namespace collage_onednn::winograd {

template <int64_t columns>
using Column = double[columns];  // a number for each result of a block

// Taps at the points of an axis of tiles; scaled as transforms.h leaves it.
template <class T, int64_t columns>
inline void taps_at_points(const Column<columns>* taps, Column<columns>* at) {
  // x and -x are told apart by the taps between.
  auto pair = [&](double x, double scale, Column<columns>& above, Column<columns>& below) {
    Column<columns> even = {}, odd = {};
    for (int64_t k = T::kTaps - 1; k >= 0; --k) {
      Column<columns>& sum = k % 2 ? odd : even;
      for (int64_t i = 0; i < columns; ++i) sum[i] = taps[k][i] + x * x * sum[i];
    }
    for (int64_t i = 0; i < columns; ++i) {
      above[i] = (even[i] + x * odd[i]) / scale;
      below[i] = (even[i] - x * odd[i]) / scale;
    }
  };
  const double a = kNear, b = kFar, a2 = a * a, b2 = b * b;
  const double first = T::kPoints == 6 ? 1 / (a2 * b2) : 1;
  for (int64_t i = 0; i < columns; ++i) {
    at[0][i] = first * taps[0][i];
    at[T::kPoints - 1][i] = taps[T::kTaps - 1][i];
  }
  if constexpr (T::kPoints == 4) pair(1, 2, at[1], at[2]);
  if constexpr (T::kPoints == 6) {
    pair(a, 2 * a2 * (a2 - b2), at[1], at[2]);
    pair(b, 2 * b2 * (b2 - a2), at[3], at[4]);
  }
}

// From row-major weights, for each block of results: points, taps along planes, channels, results.
template <class R, class C, int64_t width_of_block>
inline void pack_weights(const Shape& s, const float* weights, float* packed) {
  constexpr int64_t n = R::kPoints, m = C::kPoints, taps = R::kTaps * C::kTaps;
  const int64_t depth = s.channels / s.groups, made = s.made / s.groups;
  const int64_t blocks = (made + width_of_block - 1) / width_of_block, planes = s.planes.taps;
#pragma omp parallel for
  for (int64_t block = 0; block < s.groups * blocks; ++block) {
    const int64_t place = block % blocks * width_of_block, begin = block / blocks * made + place;
    const int64_t width = std::min(width_of_block, made - place);
    float* to = packed + n * m * planes * depth * begin;
    // Columns of taps at points of rows, then rows at points of columns.
    using Numbers = Column<width_of_block>;
    Numbers row[C::kTaps] = {}, rows[R::kTaps][m], column[R::kTaps], at[n];
    for (int64_t summand = 0; summand < planes * depth; ++summand) {
      const int64_t plane = summand / depth, c = summand % depth;
      for (int64_t i = 0; i < R::kTaps; ++i) {
        for (int64_t j = 0; j < C::kTaps; ++j)
          for (int64_t k = 0; k < width; ++k)
            row[j][k] =
                weights[(((begin + k) * depth + c) * planes + plane) * taps + i * C::kTaps + j];
        taps_at_points<C, width_of_block>( row, rows[i]);
      }
      for (int64_t j = 0; j < m; ++j) {
        for (int64_t i = 0; i < R::kTaps; ++i)
          for (int64_t k = 0; k < width_of_block; ++k) column[i][k] = rows[i][j][k];
        taps_at_points<R, width_of_block>( column, at);
        for (int64_t i = 0; i < n; ++i)
          for (int64_t k = 0; k < width; ++k)
            to[((i * m + j) * planes * depth + summand) * width + k] =
                static_cast<float>(at[i][k]);
      }
    }
  }
}

}  // namespace collage_onednn::winograd
