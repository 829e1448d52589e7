/* Regions of pictures cut out into as many values each: a thread for each value. */
#ifndef COLLAGE_REGIONS
#define COLLAGE_REGIONS

namespace collage {

/* The pictures' extents, those of a region's result, and whether channels are the last axis. */
template <int kChannels, int kHeight, int kWidth, int kRows, int kColumns, bool kLast>
struct Pictures {
  static constexpr int kValues = kChannels * kRows * kColumns;

  int channel, row, column;

  __device__ __forceinline__ explicit Pictures(int own)
      : channel(kLast ? own % kChannels : own / (kRows * kColumns)),
        row(kLast ? own / (kColumns * kChannels) : own / kColumns % kRows),
        column(kLast ? own / kChannels % kColumns : own % kColumns) {}

  template <class X>
  __device__ __forceinline__ const X* of(const X* x, float picture) const {
    const long long before = static_cast<long long>(static_cast<int>(picture)) * kChannels;
    return x + (kLast ? before * (kHeight * kWidth) + channel
                      : (before + channel) * (kHeight * kWidth));
  }
  __device__ __forceinline__ static int pixel(int y, int x) {
    return (y * kWidth + x) * (kLast ? kChannels : 1);
  }
};

/* Where a part of a side begins and ends, in pixels; halves are rounded up. */
struct Span {
  int begin, end;

  __device__ __forceinline__ Span(float low, float high, float scale, int part, int parts,
                                  int extent) {
    const int first = static_cast<int>(floorf(__fmul_rn(low, scale) + 0.5f));
    const int last = static_cast<int>(floorf(__fmul_rn(high, scale) + 0.5f));
    const float size = static_cast<float>(max(last - first + 1, 1)) / static_cast<float>(parts);
    begin = min(max(static_cast<int>(floorf(part * size)) + first, 0), extent);
    end = min(max(static_cast<int>(ceilf((part + 1) * size)) + first, 0), extent);
  }
};

template <class Picture, int kHeight, int kWidth, int kRows, int kColumns, class X, class B, class Y>
__device__ __forceinline__ void region_maxima(const X* __restrict__ x, const B* __restrict__ boxes,
                                              Y* __restrict__ out, long long count, float scale,
                                              long long block) {
  const long long number = block * blockDim.x + threadIdx.x;
  if (number >= count) return;
  const Picture own(static_cast<int>(number % Picture::kValues));
  const B* box = boxes + number / Picture::kValues * 5;
  const Span rows(static_cast<float>(box[2]), static_cast<float>(box[4]), scale, own.row, kRows,
                  kHeight);
  const Span columns(static_cast<float>(box[1]), static_cast<float>(box[3]), scale, own.column,
                     kColumns, kWidth);
  const X* from = own.of(x, static_cast<float>(box[0]));
  const bool any = rows.begin < rows.end && columns.begin < columns.end;
  float found = any ? -INFINITY : 0.0f;
  for (int i = rows.begin; i < rows.end; ++i) {
    for (int j = columns.begin; j < columns.end; ++j) {
      found = max(found, static_cast<float>(from[Picture::pixel(i, j)]));
    }
  }
  out[number] = static_cast<Y>(found);
}

/* The two pixels beside a place, and the share of the second one. */
struct Beside {
  int first, second;
  float share;
  bool outside;

  __device__ __forceinline__ Beside(float place, int extent)
      : outside(place < -1.0f || place > static_cast<float>(extent)) {
    const float inside = min(max(place, 0.0f), static_cast<float>(extent - 1));
    first = static_cast<int>(inside);
    second = min(first + 1, extent - 1);
    share = inside - static_cast<float>(first);
  }
};

/* A part of a side: where its samples are. */
struct Samples {
  float begin, size;
  int count;

  __device__ __forceinline__ Samples(float low, float high, float scale, int part, int parts,
                                     int given, bool any_size) {
    const float start = __fmul_rn(low, scale), side = __fmul_rn(high, scale) - start;
    size = (any_size ? side : max(side, 1.0f)) / static_cast<float>(parts);
    count = given > 0 ? given : static_cast<int>(ceilf(size));
    begin = start + static_cast<float>(part) * size;
  }
  __device__ __forceinline__ float at(int i) const {
    return begin + (static_cast<float>(i) + 0.5f) * size / static_cast<float>(count);
  }
};

/* Averages of samples between pixels, or their maxima; kSamples of each side, or one for each pixel
   if there are none. */
template <class Picture, int kHeight, int kWidth, int kRows, int kColumns, int kSamples, bool kAnySize,
          bool kMean, class X, class B, class Y>
__device__ __forceinline__ void region_samples(const X* __restrict__ x, const B* __restrict__ boxes,
                                               Y* __restrict__ out, long long count, float scale,
                                               long long block) {
  const long long number = block * blockDim.x + threadIdx.x;
  if (number >= count) return;
  const Picture own(static_cast<int>(number % Picture::kValues));
  const B* box = boxes + number / Picture::kValues * 5;
  const Samples rows(static_cast<float>(box[2]), static_cast<float>(box[4]), scale, own.row, kRows,
                     kSamples, kAnySize);
  const Samples columns(static_cast<float>(box[1]), static_cast<float>(box[3]), scale, own.column,
                        kColumns, kSamples, kAnySize);
  const X* from = own.of(x, static_cast<float>(box[0]));
  const auto pixel = [&](int i, int j) {
    return static_cast<float>(from[Picture::pixel(i, j)]);
  };
  float found = kMean ? 0.0f : -3.402823466e38f;
#pragma unroll
  for (int i = 0; i < rows.count; ++i) {
    const Beside y(rows.at(i), kHeight);
#pragma unroll
    for (int j = 0; j < columns.count; ++j) {
      const Beside x_(columns.at(j), kWidth);
      float value = 0.0f;
      if (!y.outside && !x_.outside) {
        const float top = pixel(y.first, x_.first) * (1.0f - x_.share) +
                          pixel(y.first, x_.second) * x_.share;
        const float bottom = pixel(y.second, x_.first) * (1.0f - x_.share) +
                             pixel(y.second, x_.second) * x_.share;
        value = top * (1.0f - y.share) + bottom * y.share;
      }
      found = kMean ? found + value : max(found, value);
    }
  }
  if (kMean && rows.count > 0 && columns.count > 0) {
    found /= static_cast<float>(rows.count * columns.count);
  }
  out[number] = static_cast<Y>(found);
}

}  // namespace collage
#endif
