// Convolutions of each channel by itself, channels last, whose results are in bfloat16, for which the
// library's kernels take longer than for float32 (of twelve shapes all but one, in one of two runs).
// See vectors.h.

// A block of 32 channels of a pixel in float32: those of even numbers, then those of odd ones, which is
// how two numbers of half the width lie in one of the whole.
struct Pair {
  Lanes even, odd;
};

COLLAGE_AVX512 inline __mmask32 halves_from(int64_t left) {
  return left < kDepthwiseBlock ? static_cast<__mmask32>((1u << left) - 1) : 0xffffffffu;
}

// Which of 32 numbers, from the first or the second on, one vector of a `Pair` has.
COLLAGE_AVX512 inline __m512i every_second(int first) {
  const __m512i step = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  return _mm512_add_epi32(step, _mm512_set1_epi32(first));
}

COLLAGE_AVX512 inline Pair pair_of(const float* x, int64_t left) {
  const Lanes first = load_first(x, left, all(0.f));
  const Lanes second = left > kLanes ? load_first(x + kLanes, left - kLanes, all(0.f)) : all(0.f);
  return {_mm512_permutex2var_ps(first, every_second(0), second),
          _mm512_permutex2var_ps(first, every_second(1), second)};
}
COLLAGE_AVX512 inline Pair pair_of(const uint16_t* x, int64_t left) {
  const __m512i two = _mm512_maskz_loadu_epi16(halves_from(left), x);
  return {_mm512_castsi512_ps(_mm512_slli_epi32(two, 16)),
          _mm512_castsi512_ps(_mm512_and_si512(two, _mm512_set1_epi32(-1 << 16)))};
}

COLLAGE_AVX512 inline void write_pair(uint16_t* y, int64_t left, Pair a) {
  _mm512_mask_storeu_epi16(y, halves_from(left), halves_in_turns(a.even, a.odd));
}

// What the taps see of a block of channels: as many rows of the picture as they span, in float32 with
// zeros beside it, each at its number modulo their count.
struct Seen {
  float* rows;        // and one row of zeros behind them
  int64_t width;      // of a row, in pixels
  int64_t next;       // row of the picture to be read
};

template <class Number>
COLLAGE_AVX512 inline void see(const Depthwise& s, const Number* x, int64_t left, int64_t last,
                               Seen* seen) {
  const int64_t span = s.span(0), pixels = std::min(s.read[1], seen->width - s.padding[1]);
  for (; seen->next < last; ++seen->next) {
    const Number* from = x + seen->next * s.read[1] * s.channels;
    float* to = seen->rows + (seen->next % span * seen->width + s.padding[1]) * kDepthwiseBlock;
    for (int64_t i = 0; i < pixels; ++i, from += s.channels, to += kDepthwiseBlock) {
      const Pair pixel = pair_of(from, left);
      _mm512_store_ps(to, pixel.even);
      _mm512_store_ps(to + kLanes, pixel.odd);
    }
  }
}

// Sums of `count` neighbours, `step` pixels apart (0: as far as `s` says), before what follows.
template <int count, int step>
COLLAGE_AVX512 inline void taps_summed(const Depthwise& s, const float* const* rows, int64_t pixel,
                                       const float* weights, const float* bias, Pair* sums) {
  const int64_t apart = (step ? step : s.step[1]) * kDepthwiseBlock;
  for (int i = 0; i < count; ++i) sums[i] = {load(bias), load(bias + kLanes)};
  for (int64_t row = 0; row < s.taps[0]; ++row) {
    const float* x = rows[row] + pixel * apart;
    for (int64_t tap = 0; tap < s.taps[1]; ++tap) {
      const Lanes even = load(weights), odd = load(weights + kLanes);
      for (int i = 0; i < count; ++i) {
        sums[i].even = fma(_mm512_load_ps(x + i * apart), even, sums[i].even);
        sums[i].odd = fma(_mm512_load_ps(x + i * apart + kLanes), odd, sums[i].odd);
      }
      weights += kDepthwiseBlock;
      x += s.dilation[1] * kDepthwiseBlock;
    }
  }
}

COLLAGE_AVX512 inline Lanes bounded(const Depthwise& s, Lanes x) {
  return smaller(all(s.most), larger(all(s.least), x));
}

template <int count, int step>
COLLAGE_AVX512 inline void pixels_made(const Depthwise& s, const float* const* rows,
                                            int64_t pixel, const float* weights, const float* bias,
                                            int64_t left, uint16_t* y) {
  Pair sums[count];
  taps_summed<count, step>(s, rows, pixel, weights, bias, sums);
  for (int i = 0; i < count; ++i) {
    Pair made{bounded(s, sums[i].even), bounded(s, sums[i].odd)};
    for (const Link& link : s.links)
      made = {linked(link, made.even, all(0.f)), linked(link, made.odd, all(0.f))};
    write_pair(y + (pixel + i) * s.channels, left, made);
  }
}

template <int step>
COLLAGE_AVX512 inline void row_made(const Depthwise& s, const float* const* rows,
                                         const float* weights, const float* bias, int64_t left,
                                         uint16_t* y) {
  constexpr int together = 7;  // fourteen sums, as there are 32 registers
  const int64_t last = s.made[1] - together;
  if (last < 0) {
    for (int64_t pixel = 0; pixel < s.made[1]; ++pixel)
      pixels_made<1, step>(s, rows, pixel, weights, bias, left, y);
    return;
  }
  for (int64_t pixel = 0; pixel < last; pixel += together)
    pixels_made<together, step>(s, rows, pixel, weights, bias, left, y);
  pixels_made<together, step>(s, rows, last, weights, bias, left, y);  // some of them once more
}

// Rows of one block of channels of one picture.
template <class Number>
COLLAGE_AVX512 inline void block_made(const Depthwise& s, const Number* x, const float* weights,
                                           const float* bias, int64_t left, int64_t first,
                                           int64_t last, uint16_t* y, float* room) {
  const int64_t span = s.span(0), width = s.seen_width();
  float* const zeros = room + span * width * kDepthwiseBlock;
  Seen seen{room, width, std::max<int64_t>(0, first * s.step[0] - s.padding[0])};
  std::fill_n(room, s.room(), 0.f);
  const float* rows[kMostDepthwiseTaps];
  for (int64_t row = first; row < last; ++row) {
    const int64_t top = row * s.step[0] - s.padding[0];
    seen.next = std::max(seen.next, top);
    see(s, x, left, std::min(s.read[0], top + span), &seen);
    for (int64_t tap = 0; tap < s.taps[0]; ++tap) {
      const int64_t at = top + tap * s.dilation[0];
      const bool inside = at >= 0 && at < s.read[0];
      rows[tap] = inside ? room + at % span * width * kDepthwiseBlock : zeros;
    }
    uint16_t* to = y + row * s.made[1] * s.channels;
    if (s.step[1] == 1) row_made<1>(s, rows, weights, bias, left, to);
    else if (s.step[1] == 2) row_made<2>(s, rows, weights, bias, left, to);
    else row_made<0>(s, rows, weights, bias, left, to);
  }
}

void depthwise_rows(const Depthwise& s, int64_t image, int64_t block, int64_t first, int64_t last,
                    const DepthwiseData& data, float* room) {
  const int64_t channel = block * kDepthwiseBlock, left = s.channels - channel;
  const int64_t from = image * s.read[0] * s.read[1] * s.channels + channel;
  const int64_t to = image * s.made[0] * s.made[1] * s.channels + channel;
  const float* weights = data.weights + channel * s.taps[0] * s.taps[1];
  const float* bias = data.bias + channel;
  uint16_t* const y = static_cast<uint16_t*>(data.y) + to;
  if (s.reads_rounded)
    block_made(s, static_cast<const uint16_t*>(data.x) + from, weights, bias, left, first, last, y,
               room);
  else
    block_made(s, static_cast<const float*>(data.x) + from, weights, bias, left, first, last, y, room);
}
