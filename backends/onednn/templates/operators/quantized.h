// Values rounded to bytes over their own range, for products of 8-bit integers.
#pragma once

#include <cstdint>

#include "../vectors/lanes_avx512.h"
#include "recurrent.h"

namespace collage_onednn {

// A tensor of less than this one thread rounds before a second has come.
constexpr int64_t kAloneElements = 1 << 18;

// To the nearest, ties to even: what is added leaves no digits behind the point.
inline float nearest(float x) {
  constexpr float no_fraction = 12582912.f;
  return (x + no_fraction) - no_fraction;
}

#ifdef COLLAGE_AVX512
COLLAGE_AVX512 inline void range_in_vectors(const float* x, int64_t count, float* low,
                                            float* high) {
  __m512 least = _mm512_setzero_ps(), most = least;
  for (int64_t i = 0; i < count; i += 16) {
    const __m512 v = _mm512_maskz_loadu_ps(lanes_from(count - i), x + i);
    least = _mm512_min_ps(least, v);
    most = _mm512_max_ps(most, v);
  }
  *low = _mm512_reduce_min_ps(least);
  *high = _mm512_reduce_max_ps(most);
}

COLLAGE_AVX512 inline int32_t to_bytes_in_vectors(const float* x, int64_t count, float step,
                                                  float point, uint8_t* bytes) {
  const __m512 steps = _mm512_set1_ps(step), points = _mm512_set1_ps(point);
  const __m512 zero = _mm512_setzero_ps(), limit = _mm512_set1_ps(255.f);
  __m512i sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < count; i += 16) {
    const __mmask16 lanes = lanes_from(count - i);
    __m512 v = _mm512_div_ps(_mm512_maskz_loadu_ps(lanes, x + i), steps);
    v = _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    v = _mm512_min_ps(_mm512_max_ps(_mm512_add_ps(v, points), zero), limit);
    const __m512i whole = _mm512_cvtps_epi32(v);
    _mm512_mask_cvtepi32_storeu_epi8(bytes + i, lanes, whole);
    sum = _mm512_mask_add_epi32(sum, lanes, sum, whole);
  }
  return _mm512_reduce_add_epi32(sum);
}
#endif

// The least and the largest value, and zero.
inline void range_of(const float* x, int64_t count, float* low, float* high) {
#ifdef COLLAGE_AVX512
  if (has_isa(dnnl::cpu_isa::avx512_core)) return range_in_vectors(x, count, low, high);
#endif
  *low = *high = 0.f;
  for (int64_t i = 0; i < count; ++i) {
    *low = std::min(*low, x[i]);
    *high = std::max(*high, x[i]);
  }
}

// Gives the sum of the bytes.
inline int32_t to_bytes(const float* x, int64_t count, float step, float point, uint8_t* bytes) {
#ifdef COLLAGE_AVX512
  if (has_isa(dnnl::cpu_isa::avx512_core)) return to_bytes_in_vectors(x, count, step, point, bytes);
#endif
  int32_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float shifted = std::max(nearest(x[i] / step) + point, 0.f);
    bytes[i] = static_cast<uint8_t>(std::min(shifted, 255.f));
    sum += bytes[i];
  }
  return sum;
}

// inputs: x; outputs: its rows in bytes, their step, where zero is, each row's sum of what its bytes
// stand for; floats: [step, where zero is], else over the range of x
inline void Region::quantize(const Op& op) {
  const dims rows = tensor_dims(op.outputs[0]);
  Arguments arguments{{0, plain(op.inputs[0])}};
  for (int tensor : op.outputs) {
    bind(tensor, storage_.fresh(tensor_md(tensor)));
    arguments.emplace_back(0, value_of(tensor));
  }
  const std::vector<float> known = op.floats;
  emit_host(arguments, [rows, known](const std::vector<void*>& data) {
    const auto* x = static_cast<const float*>(data[0]);
    auto* bytes = static_cast<uint8_t*>(data[1]);
    auto* sums = static_cast<float*>(data[4]);
    const int64_t count = rows[0], width = rows[1];
    const bool shared = count * width >= kAloneElements;
    float low = 0.f, high = 0.f;
#pragma omp parallel for if (shared) reduction(min : low) reduction(max : high)
    for (int64_t i = 0; i < (known.empty() ? count : 0); ++i) {
      float least, most;
      range_of(x + i * width, width, &least, &most);
      low = std::min(low, least);
      high = std::max(high, most);
    }
    float step = known.empty() ? (high - low) / 255.f : known[0];
    if (step == 0.f) step = 1.f;
    const float point =
        known.empty() ? nearest(std::min(std::max(-low / step, 0.f), 255.f)) : known[1];
    *static_cast<float*>(data[2]) = step;
    *static_cast<int32_t*>(data[3]) = static_cast<int32_t>(point);
#pragma omp parallel for if (shared)
    for (int64_t i = 0; i < count; ++i) {
      const int32_t sum = to_bytes(x + i * width, width, step, point, bytes + i * width);
      sums[i] = (static_cast<float>(sum) - static_cast<float>(width) * point) * step;
    }
  });
}

// What the bytes of a product stand for, where its processor does not multiply bytes.
inline int Region::floats_of_bytes(const Op& op) {
  const int64_t count = tensor_dims(op.inputs[0])[0] * tensor_dims(op.inputs[0])[1];
  const int floats = storage_.fresh(row_major(tensor_dims(op.inputs[0])));
  emit_host({{0, value_of(op.inputs[0])}, {0, value_of(op.inputs[3])},
             {0, value_of(op.inputs[4])}, {0, floats}},
            [count](const std::vector<void*>& data) {
              const auto* bytes = static_cast<const uint8_t*>(data[0]);
              const float step = *static_cast<const float*>(data[1]);
              const int32_t point = *static_cast<const int32_t*>(data[2]);
              auto* result = static_cast<float*>(data[3]);
              for (int64_t i = 0; i < count; ++i)
                result[i] = static_cast<float>(bytes[i] - point) * step;
            });
  return floats;
}

inline int Region::floats_of_weights(const Op& op) {
  const dims& d = tensor_dims(op.inputs[1]);
  const int floats = storage_.owned(row_major(d));
  auto* result = reinterpret_cast<float*>(storage_.group(floats).data);
  auto data = [&](int tensor) { return storage_.group(value_of(tensor)).data; };
  const auto* weights = reinterpret_cast<const int8_t*>(data(op.inputs[1]));
  const auto* scales = reinterpret_cast<const float*>(data(op.inputs[2]));
  for (int64_t i = 0; i < d[0] * d[1]; ++i) result[i] = weights[i] * scales[i % d[1]];
  return floats;
}

}  // namespace collage_onednn
