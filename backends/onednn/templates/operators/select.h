// Channels picked from several pictures: what concatenations, shuffles and slices come to together.
#pragma once

#include <cstring>

#include "bytes.h"

namespace collage_onednn {

// A channel of the result: which input it is of, and which channel there.
struct Pick {
  int64_t input, channel;
};

// inputs: pictures of one size; ints: for each channel of the result a Pick
inline void Region::select(const Op& op) {
  const dims& out = tensor_dims(op.outputs[0]);
  const size_t rank = out.size();
  auto last = [&](int tensor) { return with_tag(tensor_dims(tensor), channels_last(rank)); };
  size_t plain_ones = 0;
  for (int tensor : op.inputs) plain_ones += md_of(tensor) == tensor_md(tensor);
  const bool by_planes = 2 * plain_ones > op.inputs.size();
  Arguments arguments;
  std::vector<int64_t> widths;
  for (int tensor : op.inputs) {
    arguments.emplace_back(0, by_planes ? plain(tensor) : in_layout(tensor, last(tensor)));
    widths.push_back(tensor_dims(tensor)[1]);
  }
  const int dst = storage_.fresh(by_planes ? tensor_md(op.outputs[0]) : last(op.outputs[0]));
  arguments.emplace_back(0, dst);
  std::vector<Pick> picks;
  for (size_t i = 0; i < op.ints.size(); i += 2) picks.push_back({op.ints[i], op.ints[i + 1]});
  int64_t pixels = 1;  // of one sample
  for (size_t i = 2; i < rank; ++i) pixels *= out[i];
  const int64_t samples = out[0], channels = out[1];
  if (by_planes) {
    emit_host(arguments, [=](const std::vector<void*>& data) {
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
    });
  } else {
    emit_host(arguments, [=](const std::vector<void*>& data) {
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
    });
  }
  bind(op.outputs[0], dst);
}

}  // namespace collage_onednn
