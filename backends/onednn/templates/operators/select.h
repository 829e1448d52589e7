// Channels picked from several pictures: what concatenations, shuffles and slices come to together.
#pragma once

#include "bytes.h"

namespace collage_onednn {

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
  const int64_t samples = out[0];
  emit_host(arguments, [=](const std::vector<void*>& data) {
    (by_planes ? pick_planes : pick_pixels)(picks, widths, samples, pixels, data);
  });
  bind(op.outputs[0], dst);
}

}  // namespace collage_onednn
