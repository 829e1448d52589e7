// Weights whose input channels are scaled by what was computed: in place of scaling a picture.
#pragma once

#include "strided.h"

namespace collage_onednn {

inline Channels channels_of(const desc& packed) {
  const dims extents = packed.get_dims(), strides = packed.get_strides();
  const dims blocks = packed.get_inner_blks(), blocked = packed.get_inner_idxs();
  std::vector<int32_t> channels(packed.get_size() / sizeof(float), 0);
  dims position(extents.size(), 0);
  for (bool more = true; more;) {
    dims left = position;
    int64_t place = 0, stride = 1;
    for (size_t k = blocks.size(); k-- > 0; stride *= blocks[k]) {
      int64_t& index = left[static_cast<size_t>(blocked[k])];
      place += index % blocks[k] * stride;
      index /= blocks[k];
    }
    for (size_t i = 0; i < left.size(); ++i) place += left[i] * strides[i];
    channels[static_cast<size_t>(place)] = static_cast<int32_t>(position[1]);
    more = false;
    for (size_t i = extents.size(); i-- > 0 && !more;) {
      more = ++position[i] < extents[i];
      if (!more) position[i] = 0;
    }
  }
  // Blocks of output channels are innermost in most layouts.
  const int64_t last = !blocks.empty() && blocked.back() == 0 ? blocks.back() : 1;
  Channels result{last, {}};
  for (size_t i = 0; i < channels.size(); i += static_cast<size_t>(last))
    result.entries.push_back(channels[i]);
  return result;
}

// The operator that scales weights, where one does.
inline const Op* Region::scaling_of(int weights) const {
  for (const Op& op : plan_.ops)
    if (op.kind == OpKind::scale_weights && op.outputs[0] == weights) return &op;
  return nullptr;
}

// inputs: weights, a factor for each of their input channels
inline int Region::scaled_weights(const Op& scaling, const desc& packed) {
  const int weights = in_layout(scaling.inputs[0], packed);
  const int factors = plain(scaling.inputs[1]);
  const int result = storage_.fresh(packed);
  const auto channels = std::make_shared<Channels>(channels_of(packed));
  const bool shared = packed.get_size() >= kAloneBytes;
  emit_host({{0, weights}, {0, factors}, {0, result}},
            [channels, shared](const std::vector<void*>& data) {
    scale_channels(*channels, static_cast<const float*>(data[0]),
                   static_cast<const float*>(data[1]), shared, static_cast<float*>(data[2]));
  });
  return result;
}

}  // namespace collage_onednn
