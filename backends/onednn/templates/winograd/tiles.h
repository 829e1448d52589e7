// One tile of a picture taken to its points, and back from them, in each namespace of lanes.

// A vector of channels of one tile: its points are `apart` numbers from each other. Pixels that are
// not in the picture are zero.
template <class R, class C>
COLLAGE_LANES inline void picture_to_points(const Strides& strides, const Shape& s,
                                            const Tile& tile, int64_t plane, const float* x,
                                            float* points, int64_t apart) {
  constexpr int n = R::kPoints, m = C::kPoints;
  const int64_t top = tile.row - s.padding[0], left = tile.column - s.padding[1];
  const int64_t down = strides.row * s.dilation[0], right = strides.pixel * s.dilation[1];
  const float* first = x + tile.image * strides.image + plane * strides.plane +
                       top * strides.row + left * strides.pixel;
  const bool inside = top >= 0 && left >= 0 && top + (n - 1) * s.dilation[0] < s.height &&
                      left + (m - 1) * s.dilation[1] < s.width;
  Lanes rows[n][m];
  for (int i = 0; i < n; ++i) {
    Lanes d[m];
    if (inside) {
#pragma GCC unroll 6
      for (int j = 0; j < m; ++j) d[j] = load(first + i * down + j * right);
    } else {
      const int64_t row = top + i * s.dilation[0];
      for (int j = 0; j < m; ++j) {
        const int64_t column = left + j * s.dilation[1];
        const bool here = row >= 0 && row < s.height && column >= 0 && column < s.width;
        d[j] = here ? load(first + i * down + j * right) : all(0.f);
      }
    }
    C::to_points(d, rows[i]);
  }
#pragma GCC unroll 6
  for (int j = 0; j < m; ++j) {
    Lanes d[n], v[n];
#pragma GCC unroll 6
    for (int i = 0; i < n; ++i) d[i] = rows[i][j];
    R::to_points(d, v);
#pragma GCC unroll 6
    for (int i = 0; i < n; ++i) store(points + (i * m + j) * apart, v[i]);
  }
}

// What follows the convolution, on a vector of results at `place` of the tensor.
COLLAGE_WITHIN Lanes followed(const Following& following, Lanes y, int64_t place) {
  for (int i = 0; i < following.count; ++i) {
    const Step& step = following.steps[i];
    switch (step.kind) {
      case Step::addition: y = add(y, load(step.other + place)); break;
      case Step::relu: y = larger(all(0.f), y); break;
      case Step::leaky: y = choose(above(y, all(0.f)), y, mul(all(step.alpha), y)); break;
      case Step::clip: y = smaller(all(step.beta), larger(all(step.alpha), y)); break;
    }
  }
  return y;
}

// A vector of the result's channels of one tile. `channel` is where these lie in a picture.
template <class R, class C>
COLLAGE_LANES inline void points_to_results(const Strides& strides, const Shape& s,
                                            const Tile& tile, int64_t plane, const float* points,
                                            int64_t apart, const float* bias,
                                            const Following& following, int64_t channel, float* y) {
  constexpr int n = R::kPoints, m = C::kPoints;
  Lanes rows[n][C::kResults];
#pragma GCC unroll 6
  for (int i = 0; i < n; ++i) {
    Lanes d[m];
#pragma GCC unroll 6
    for (int j = 0; j < m; ++j) d[j] = load(points + (i * m + j) * apart);
    C::to_results(d, rows[i]);
  }
  const Lanes first = bias ? load(bias) : all(0.f);
  const int64_t place = channel + tile.image * strides.image + plane * strides.plane +
                        tile.row * strides.row + tile.column * strides.pixel;
#pragma GCC unroll 4
  for (int j = 0; j < C::kResults; ++j) {
    Lanes d[n], v[R::kResults];
#pragma GCC unroll 6
    for (int i = 0; i < n; ++i) d[i] = rows[i][j];
    R::to_results(d, v);
    if (tile.column + j * s.dilation[1] >= s.columns) continue;
    for (int i = 0; i < R::kResults; ++i) {
      if (tile.row + i * s.dilation[0] >= s.rows) break;
      const int64_t at =
          place + i * s.dilation[0] * strides.row + j * s.dilation[1] * strides.pixel;
      store(y + at, followed(following, add(v[i], first), at));
    }
  }
}
