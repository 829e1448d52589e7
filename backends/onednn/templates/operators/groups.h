// Groups of few channels in bfloat16: kernels for tiles multiply 32 channels at once and have none for
// fewer, so neighbouring groups become one, with zeros where a result reads nothing of another's.
#pragma once

#include "simple.h"

namespace collage_onednn {

constexpr int64_t kChannelsOfTiles = 32;

// How many neighbouring groups fill a tile; 1 where they are not to be joined.
inline int64_t Region::joined_groups(const Op& op) {
  const dims &w = tensor_dims(op.inputs[1]), &out = tensor_dims(op.outputs[0]);
  if (!multiplies_rounded() || !has_isa(dnnl_cpu_isa_avx512_core_amx) || !rounds_pictures(op) ||
      !is_constant(op.inputs[1]) || w.size() <= out.size() || w[2] >= kChannelsOfTiles || w[2] == 1)
    return 1;
  int64_t together = kChannelsOfTiles / w[2];
  while (w[0] % together != 0) --together;
  return together;
}

// Weights of `together` groups as those of one.
inline int Region::weights_of_joined(int weights, int64_t together) {
  const dims given = tensor_dims(weights);
  dims made = given;
  made[0] /= together;
  made[1] *= together;
  made[2] *= together;
  const int value = plain(weights), result = storage_.owned(row_major(made));
  const int64_t outputs = given[1], inputs = given[2];
  const int64_t taps = elements_of(given) / (given[0] * outputs * inputs);
  const auto* from = reinterpret_cast<const float*>(storage_.group(value).data +
                                                    storage_.offset(value));
  auto* to = reinterpret_cast<float*>(storage_.group(result).data);
  std::fill_n(to, elements_of(made), 0.f);
  for (int64_t channel = 0; channel < given[0] * outputs; ++channel) {
    const int64_t group = channel / outputs % together;
    std::copy_n(from + channel * inputs * taps, inputs * taps,
                to + (channel * together + group) * inputs * taps);
  }
  const int tensor = fresh_tensor(made);
  bind(tensor, result);
  plan_.tensors[static_cast<size_t>(tensor)].source = Source::constant;
  return tensor;
}

// Whether a convolution was done with groups joined: where there is a kernel for tiles then.
inline bool Region::conv_of_joined(const Op& op, size_t at) {
  const int64_t together = joined_groups(op);
  if (together == 1) return false;
  const auto rounded = memory::data_type::bf16;
  dims w = tensor_dims(op.inputs[1]);
  w[0] /= together;
  w[1] *= together;
  w[2] *= together;
  const size_t axes = tensor_dims(op.outputs[0]).size() - 2;
  auto part = [&](size_t i) { return ints_of(op, axes, i); };
  if (torn_windows(w, part(0)) || leaves_gaps(w, part(0))) return false;
  const dnnl::convolution_forward::primitive_desc pd(
      engine_, dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
      any_layout(tensor_dims(op.inputs[0]), rounded), any_layout(w, rounded),
      any_layout(tensor_dims(op.outputs[0])), part(0), part(1), part(2), part(3),
      user_scratchpad(), true);
  if (!pd.get(true) || !multiplies_bfloat16(pd.impl_info_str())) return false;
  Op joined = op;
  joined.inputs[1] = weights_of_joined(op.inputs[1], together);
  conv<dnnl::convolution_forward>(joined, at, dnnl::algorithm::convolution_direct);
  return true;
}

}  // namespace collage_onednn
