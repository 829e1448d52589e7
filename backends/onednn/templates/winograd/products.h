// Products of matrices of one point, in each namespace of lanes: rows are tiles, columns a block of
// the result's channels as wide as two vectors.

constexpr int64_t kBlock = 2 * kLanes;

// The most rows whose sums stay in registers: of 16 with AVX2, of 32 with AVX-512.
constexpr int kMostRows = kLanes == 8 ? 6 : 14;

// Channels that are added up from zero, before what they give is added to the others': most of what
// results are off by comes from long sums. Their weights and rows stay in a first cache.
constexpr int64_t depth_of(int64_t channels) {
  return channels <= 32 ? 16 : channels <= 64 ? 32 : 64;
}

// rows x depth numbers, `pitch` apart, times depth x vectors * kLanes of weights, added to what is
// there where it `adds`. `fetches` the weights behind these, which come from farther than a second
// cache.
template <int rows, int vectors, bool fetches>
COLLAGE_LANES inline void multiply_rows(const float* x, int64_t pitch, const float* weights,
                                        int64_t depth, float* sums, bool adds) {
  Lanes s[rows][vectors];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (int i = 0; i < vectors; ++i) s[r][i] = all(0.f);
  for (int64_t k = 0; k < depth; ++k) {
    Lanes w[vectors];
#pragma GCC unroll 2
    for (int i = 0; i < vectors; ++i) {
      const float* these = weights + k * vectors * kLanes + i * kLanes;
      w[i] = load(these);
      constexpr int64_t line = 16;
      if (fetches && i * kLanes % line == 0)
        __builtin_prefetch(these + depth * vectors * kLanes, 0, 2);
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const Lanes one = all(x[r * pitch + k]);
#pragma GCC unroll 2
      for (int i = 0; i < vectors; ++i) s[r][i] = fma(one, w[i], s[r][i]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (int i = 0; i < vectors; ++i) {
      float* sum = sums + r * kBlock + i * kLanes;
      store(sum, adds ? add(load(sum), s[r][i]) : s[r][i]);
    }
}

template <int vectors, bool fetches, int rows = kMostRows>
COLLAGE_LANES inline void multiply_at_most(int64_t count, const float* x, int64_t pitch,
                                           const float* weights, int64_t depth, float* sums,
                                           bool adds) {
  if constexpr (rows > 1) {
    if (count < rows)
      return multiply_at_most<vectors, fetches, rows - 1>(count, x, pitch, weights, depth, sums,
                                                          adds);
  }
  multiply_rows<rows, vectors, fetches>(x, pitch, weights, depth, sums, adds);
}

// `count` rows, in parts of nearly the same number of them; added to what is there where it `adds`.
template <int vectors>
COLLAGE_LANES inline void multiply_point(int64_t count, const float* x, int64_t pitch,
                                         const float* weights, int64_t depth, float* sums,
                                         bool adds) {
  const int64_t parts = (count + kMostRows - 1) / kMostRows;
  for (int64_t from = 0; from < depth; from += depth_of(depth)) {
    const int64_t most = std::min(depth_of(depth), depth - from);
    for (int64_t part = 0, row = 0; part < parts; ++part) {
      const int64_t rows = (count - row + parts - part - 1) / (parts - part);
      const float *these = x + row * pitch + from, *block = weights + from * vectors * kLanes;
      float* made = sums + row * kBlock;
      if (part == 0)
        multiply_at_most<vectors, true>(rows, these, pitch, block, most, made,
                                        adds || from > 0);
      else
        multiply_at_most<vectors, false>(rows, these, pitch, block, most, made,
                                         adds || from > 0);
      row += rows;
    }
  }
}
