// Phases of a transposed convolution, each with channels of its own, put together.
#pragma once

#include <array>
#include <cstring>

#include "select.h"

namespace collage_onednn {

// ints: groups of channels, strides, what is cut off before (each per axis). The phases of a group
// stand before its channels, as the axes do.
inline void Region::interleave(const Op& op) {
  const dims& out = tensor_dims(op.outputs[0]);
  const dims& given = tensor_dims(op.inputs[0]);
  const size_t rank = out.size(), axes = rank - 2;
  const int64_t samples = out[0], channels = out[1], groups = op.ints[0];
  std::array<int64_t, 3> stride{1, 1, 1}, cut{0, 0, 0}, from{1, 1, 1}, to{1, 1, 1};
  for (size_t i = 0; i < axes; ++i) {
    const size_t axis = 3 - axes + i;
    stride[axis] = op.ints[1 + i];
    cut[axis] = op.ints[1 + axes + i];
    from[axis] = given[2 + i];
    to[axis] = out[2 + i];
  }
  const int64_t inner = channels / groups, width = given[1];
  const int64_t phases = width / channels, pixels = to[0] * to[1] * to[2];
  // Pictures of few channels are wanted in planes, by convolutions too.
  const bool by_planes = channels <= 4;
  const int src = in_layout(op.inputs[0], with_tag(given, channels_last(rank)));
  const int dst = storage_.fresh(by_planes ? tensor_md(op.outputs[0])
                                           : with_tag(out, channels_last(rank)));
  emit_host({{0, src}, {0, dst}}, [=](const std::vector<void*>& data) {
    const auto* x = static_cast<const float*>(data[0]);
    auto* y = static_cast<float*>(data[1]);
#pragma omp parallel for
    for (int64_t row = 0; row < samples * to[0] * to[1]; ++row) {
      const int64_t h = row % to[1] + cut[1], d = row / to[1] % to[0] + cut[0];
      const int64_t sample = row / to[1] / to[0];
      const int64_t place = (sample * from[0] + d / stride[0]) * from[1] + h / stride[1];
      const int64_t phase = (d % stride[0] * stride[1] + h % stride[1]) * stride[2];
      const float* line = x + place * from[2] * width + phase * inner;
      const int64_t first = cut[2] / stride[2], begin = cut[2] % stride[2];
      for (int64_t c = 0; by_planes && c < channels; ++c) {
        const float* channel = line + c / inner * phases * inner + c % inner;
        float* plane = y + (sample * channels + c) * pixels + row % (to[0] * to[1]) * to[2];
        int64_t t = begin;
        for (int64_t w = 0, j = first; w < to[2]; ++j, t = 0)
          for (; t < stride[2] && w < to[2]; ++t) plane[w++] = channel[j * width + t * inner];
      }
      if (by_planes) continue;
      float* pixel = y + row * to[2] * channels;
      int64_t t = begin;
      for (int64_t w = 0, j = first; w < to[2]; ++j, t = 0)
        for (; t < stride[2] && w < to[2]; ++t, ++w)
          for (int64_t g = 0; g < groups; ++g, pixel += inner)
            std::memcpy(pixel, line + j * width + (g * phases + t) * inner,
                        static_cast<size_t>(inner) * sizeof(float));
    }
  });
  bind(op.outputs[0], dst);
}

}  // namespace collage_onednn
