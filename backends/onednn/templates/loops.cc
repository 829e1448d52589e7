// Loops of ours on plain numbers: see loops.h.
#include "loops.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "vectors/vectors.h"

namespace collage_onednn {
namespace {

// Calls `function` with one of the functions of two numbers, in the order of Binary in graph.py.
template <class Function>
void with_binary(int64_t algorithm, Function function) {
  switch (algorithm) {
    case 0: return function([](float a, float b) { return a + b; });
    case 1: return function([](float a, float b) { return a - b; });
    case 2: return function([](float a, float b) { return a * b; });
    case 3: return function([](float a, float b) { return a / b; });
    case 4: return function([](float a, float b) { return a > b ? a : b; });
    case 5: return function([](float a, float b) { return a < b ? a : b; });
    default: return function([](float a, float b) { return a > 0.f ? a : a * b; });
  }
}

// One row of results; `stride` is the second operand's.
template <class F>
void binary_row(F f, const float* a, const float* b, int64_t stride, int64_t count,
                       float* result) {
  if (stride == 0) {
    const float one = *b;
    for (int64_t i = 0; i < count; ++i) result[i] = f(a[i], one);
  } else if (stride == 1) {
    for (int64_t i = 0; i < count; ++i) result[i] = f(a[i], b[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) result[i] = f(a[i], b[i * stride]);
  }
}

bool adds(Reduced how) { return how == Reduced::mean || how == Reduced::sum; }

// `count` rows of `width` numbers, `pitch` apart, into one. Sums of many are those of two halves:
// thousands of numbers added one by one lose three digits.
void reduce_rows(Reduced how, const float* x, int64_t count, int64_t pitch, int64_t width,
                        float* result) {
  constexpr int64_t most_in_a_row = 64;
  if (adds(how) && count > most_in_a_row) {
    const int64_t half = count / 2;
    std::vector<float> rest(width);
    reduce_rows(how, x, half, pitch, width, result);
    reduce_rows(how, x + half * pitch, count - half, pitch, width, rest.data());
    for (int64_t i = 0; i < width; ++i) result[i] += rest[i];
    return;
  }
  for (int64_t i = 0; i < width; ++i) result[i] = x[i];
  for (int64_t r = 1; r < count; ++r) {
    const float* row = x + r * pitch;
    switch (how) {
      case Reduced::mean:
      case Reduced::sum:
        for (int64_t i = 0; i < width; ++i) result[i] += row[i];
        break;
      case Reduced::max:
        for (int64_t i = 0; i < width; ++i) result[i] = row[i] > result[i] ? row[i] : result[i];
        break;
      case Reduced::min:
        for (int64_t i = 0; i < width; ++i) result[i] = row[i] < result[i] ? row[i] : result[i];
    }
  }
}

// Numbers that lie side by side, into one.
float reduce_line(Reduced how, const float* x, int64_t count) {
  constexpr int64_t most_in_a_line = 1024;  // Vectors add them in several sums side by side.
  if (adds(how) && count > most_in_a_line) {
    const int64_t half = count / 2;
    return reduce_line(how, x, half) + reduce_line(how, x + half, count - half);
  }
  float sum = 0.f, most = x[0], least = x[0];
  switch (how) {
    case Reduced::mean:
    case Reduced::sum:
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < count; ++i) sum += x[i];
      return sum;
    case Reduced::max:
#pragma omp simd reduction(max : most)
      for (int64_t i = 0; i < count; ++i) most = std::max(most, x[i]);
      return most;
    default:
#pragma omp simd reduction(min : least)
      for (int64_t i = 0; i < count; ++i) least = std::min(least, x[i]);
      return least;
  }
}

// A tensor of less than this one thread rounds before a second has come.
constexpr int64_t kAloneElements = 1 << 18;

// To the nearest, ties to even: what is added leaves no digits behind the point.
float nearest(float x) {
  constexpr float no_fraction = 12582912.f;
  return (x + no_fraction) - no_fraction;
}

// The least and the largest value, and zero.
void range_of(const float* x, int64_t count, float* low, float* high) {
#ifdef COLLAGE_X86
  if (has_avx512()) return avx512::range_of(x, count, low, high);
#endif
  *low = *high = 0.f;
  for (int64_t i = 0; i < count; ++i) {
    *low = std::min(*low, x[i]);
    *high = std::max(*high, x[i]);
  }
}

// Gives the sum of the bytes.
int32_t to_bytes(const float* x, int64_t count, float step, float point, uint8_t* bytes) {
#ifdef COLLAGE_X86
  if (has_avx512()) return avx512::to_bytes(x, count, step, point, bytes);
#endif
  int32_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float shifted = std::max(nearest(x[i] / step) + point, 0.f);
    bytes[i] = static_cast<uint8_t>(std::min(shifted, 255.f));
    sum += bytes[i];
  }
  return sum;
}

}  // namespace

void binary_rows(int64_t algorithm, const float* a, const float* b, int64_t rows,
                 const std::vector<Run>& outer, Run inner, float* result) {
  with_binary(algorithm, [&](auto f) {
#pragma omp parallel for
    for (int64_t row = 0; row < rows; ++row) {
      int64_t place = 0, left = row;
      for (size_t k = outer.size(); k-- > 0; left /= outer[k].extent)
        place += left % outer[k].extent * outer[k].stride;
      binary_row(f, a + row * inner.extent, b + place, inner.stride, inner.extent,
                 result + row * inner.extent);
    }
  });
}

void reduce_middle(Reduced how, const float* x, const Extents& extents, int64_t parts,
                   float* partial, float* result) {
  const int64_t outer = extents.outer, count = extents.count, width = extents.width;
  const int64_t blocks = (width + kMostColumns - 1) / kMostColumns;
  float* sums = parts > 1 ? partial : result;
#pragma omp parallel for
  for (int64_t task = 0; task < outer * parts * blocks; ++task) {
    const int64_t block = task % blocks, part = task / blocks % parts;
    const int64_t o = task / blocks / parts;
    const int64_t begin = count * part / parts, end = count * (part + 1) / parts;
    const int64_t column = block * kMostColumns;
    const float* from = x + (o * count + begin) * width + column;
    float* to = sums + (o * parts + part) * width + column;
    if (width == 1) *to = reduce_line(how, from, end - begin);
    else reduce_rows(how, from, end - begin, width, std::min(kMostColumns, width - column), to);
  }
  for (int64_t o = 0; o < (parts > 1 ? outer : 0); ++o)
    reduce_rows(how, sums + o * parts * width, parts, width, width, result + o * width);
  if (how == Reduced::mean)
    for (int64_t i = 0; i < outer * width; ++i) result[i] /= static_cast<float>(count);
}

void scale_channels(const Channels& channels, const float* given, const float* scale, bool shared,
                    float* made) {
  const auto count = static_cast<int64_t>(channels.entries.size());
  const int64_t width = channels.width;
  const int32_t* channel = channels.entries.data();
  if (width == 1) {
#pragma omp parallel for if (shared)
    for (int64_t i = 0; i < count; ++i) made[i] = given[i] * scale[channel[i]];
  } else {
#pragma omp parallel for if (shared)
    for (int64_t i = 0; i < count; ++i) {
      const float factor = scale[channel[i]];
      for (int64_t j = i * width; j < (i + 1) * width; ++j) made[j] = given[j] * factor;
    }
  }
}

// From the shares: the largest one is that of the largest number, and one by the sum of the powers.
// What is no number has no share that is one.
void logarithms_of_rows(const float* x, const float* shares, float* y, int64_t rows,
                               int64_t count) {
#pragma omp parallel for
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = x + row * count;
    int64_t largest = 0;
    for (int64_t i = 1; i < count; ++i)
      if (from[i] > from[largest] || std::isnan(from[i])) largest = i;
    const float shift = from[largest], logarithm = std::log(shares[row * count + largest]);
    for (int64_t i = 0; i < count; ++i) y[row * count + i] = (from[i] - shift) + logarithm;
  }
}

void rows_chained(const Chain& chain, int64_t rows, bool rounded) {
#ifdef COLLAGE_X86
  constexpr int64_t numbers = 1 << 14;  // that are worth a turn of a thread
  const int64_t piece = std::max<int64_t>(1, numbers / chain.width);
#pragma omp parallel for
  for (int64_t first = 0; first < rows; first += piece) {
    const int64_t last = std::min(rows, first + piece);
    if (rounded) avx512::rounded_rows(chain, first, last);
    else if (has_avx512()) avx512::chained_rows(chain, first, last);
    else avx2::chained_rows(chain, first, last);
  }
#endif
}

void depthwise(const Depthwise& s, int64_t images, int64_t blocks, const DepthwiseData& data,
               float* rooms) {
#ifdef COLLAGE_X86
#pragma omp parallel
  {
    const int64_t threads = omp_get_num_threads(), parts = images * blocks;
    // Bands of rows where there are fewer blocks than threads: each reads what its taps see again.
    const int64_t bands = std::min(s.made[0], (threads + parts - 1) / parts);
    const int64_t rows = (s.made[0] + bands - 1) / bands;
    float* const mine = rooms + omp_get_thread_num() * s.room();
#pragma omp for
    for (int64_t i = 0; i < parts * bands; ++i) {
      const int64_t band = i % bands, part = i / bands;
      avx512::depthwise_rows(s, part / blocks, part % blocks, band * rows,
                             std::min(s.made[0], (band + 1) * rows), data, mine);
    }
  }
#endif
}

void rows_to_bytes(const float* x, int64_t rows, int64_t width, const std::vector<float>& known,
                   const Bytes& made) {
  const bool shared = rows * width >= kAloneElements;
  float low = 0.f, high = 0.f;
#pragma omp parallel for if (shared) reduction(min : low) reduction(max : high)
  for (int64_t i = 0; i < (known.empty() ? rows : 0); ++i) {
    float least, most;
    range_of(x + i * width, width, &least, &most);
    low = std::min(low, least);
    high = std::max(high, most);
  }
  float step = known.empty() ? (high - low) / 255.f : known[0];
  if (step == 0.f) step = 1.f;
  const float point =
      known.empty() ? nearest(std::min(std::max(-low / step, 0.f), 255.f)) : known[1];
  *made.step = step;
  *made.point = static_cast<int32_t>(point);
#pragma omp parallel for if (shared)
  for (int64_t i = 0; i < rows; ++i) {
    const int32_t sum = to_bytes(x + i * width, width, step, point, made.bytes + i * width);
    made.sums[i] = (static_cast<float>(sum) - static_cast<float>(width) * point) * step;
  }
}

void bytes_to_floats(const uint8_t* bytes, int64_t count, float step, int32_t point,
                     float* result) {
  for (int64_t i = 0; i < count; ++i) result[i] = static_cast<float>(bytes[i] - point) * step;
}

void pick_planes(const std::vector<Pick>& picks, const std::vector<int64_t>& widths,
                 int64_t samples, int64_t pixels, const std::vector<void*>& data) {
  const auto channels = static_cast<int64_t>(picks.size());
  auto* result = static_cast<float*>(data.back());
#pragma omp parallel for
  for (int64_t i = 0; i < samples * channels; ++i) {
    const Pick& pick = picks[static_cast<size_t>(i % channels)];
    const auto input = static_cast<size_t>(pick.input);
    const auto* x = static_cast<const float*>(data[input]);
    const int64_t plane = i / channels * widths[input] + pick.channel;
    std::memcpy(result + i * pixels, x + plane * pixels,
                static_cast<size_t>(pixels) * sizeof(float));
  }
}

void pick_pixels(const std::vector<Pick>& picks, const std::vector<int64_t>& widths,
                 int64_t samples, int64_t pixels, const std::vector<void*>& data) {
  const auto channels = static_cast<int64_t>(picks.size());
#pragma omp parallel
  {
    std::vector<const float*> rows(widths.size());
#pragma omp for nowait
    for (int64_t i = 0; i < samples * pixels; ++i) {
      for (size_t k = 0; k < rows.size(); ++k)
        rows[k] = static_cast<const float*>(data[k]) + i * widths[k];
      float* to = static_cast<float*>(data.back()) + i * channels;
      for (const Pick& pick : picks) *to++ = rows[static_cast<size_t>(pick.input)][pick.channel];
    }
  }
}

void interleave_phases(const Phases& p, const float* x, float* y) {
  const auto &stride = p.stride, &cut = p.cut, &from = p.from, &to = p.to;
  const int64_t channels = p.channels, width = p.width, inner = channels / p.groups;
  const int64_t phases = width / channels, pixels = to[0] * to[1] * to[2];
#pragma omp parallel for
  for (int64_t row = 0; row < p.samples * to[0] * to[1]; ++row) {
    const int64_t h = row % to[1] + cut[1], d = row / to[1] % to[0] + cut[0];
    const int64_t sample = row / to[1] / to[0];
    const int64_t place = (sample * from[0] + d / stride[0]) * from[1] + h / stride[1];
    const int64_t phase = (d % stride[0] * stride[1] + h % stride[1]) * stride[2];
    const float* line = x + place * from[2] * width + phase * inner;
    const int64_t first = cut[2] / stride[2], begin = cut[2] % stride[2];
    for (int64_t c = 0; p.by_planes && c < channels; ++c) {
      const float* channel = line + c / inner * phases * inner + c % inner;
      float* plane = y + (sample * channels + c) * pixels + row % (to[0] * to[1]) * to[2];
      int64_t t = begin;
      for (int64_t w = 0, j = first; w < to[2]; ++j, t = 0)
        for (; t < stride[2] && w < to[2]; ++t) plane[w++] = channel[j * width + t * inner];
    }
    if (p.by_planes) continue;
    float* pixel = y + row * to[2] * channels;
    int64_t t = begin;
    for (int64_t w = 0, j = first; w < to[2]; ++j, t = 0)
      for (; t < stride[2] && w < to[2]; ++t, ++w)
        for (int64_t g = 0; g < p.groups; ++g, pixel += inner)
          std::memcpy(pixel, line + j * width + (g * phases + t) * inner,
                      static_cast<size_t>(inner) * sizeof(float));
  }
}

}  // namespace collage_onednn
