// Convolutions of each channel by itself whose results products alone read, in bfloat16.
#pragma once

#include "chains.h"

namespace collage_onednn {

// What a convolution of lines or pictures is for our kernel, but for what follows it.
inline Depthwise Region::depthwise_of(const Op& op) const {
  const dims &x = tensor_dims(op.inputs[0]), &y = tensor_dims(op.outputs[0]);
  const dims& w = tensor_dims(op.inputs[1]);
  const size_t axes = y.size() - 2;
  Depthwise s{};
  s.channels = y[1];
  for (size_t i = 0; i < 2; ++i) {  // rows, of which lines have one, and columns
    const bool there = i + axes >= 2;
    const size_t axis = there ? i + axes - 2 : 0;
    auto of = [&](size_t part) { return there ? ints_of(op, axes, part)[axis] : 0; };
    s.read[i] = there ? x[2 + axis] : 1;
    s.made[i] = there ? y[2 + axis] : 1;
    s.taps[i] = there ? w[w.size() - axes + axis] : 1;
    s.step[i] = there ? of(0) : 1;
    s.dilation[i] = of(1) + 1;
    s.padding[i] = of(2);
  }
  return s;
}

// Whether our kernel is to do it: it has lines and pictures with constant weights whose rows it can
// keep near, and is faster where the result is written in half the width.
inline bool Region::is_by_channel(const Op& op) {
  const dims &w = tensor_dims(op.inputs[1]), &out = tensor_dims(op.outputs[0]);
  if (op.kind != OpKind::conv || !is_depthwise(w, out.size()) || out.size() > 4 ||
      !multiplies_rounded() || !is_constant(op.inputs[1]))
    return false;
  const size_t paddings = 2 * (out.size() - 2);
  auto cut = [](int64_t padding) { return padding < 0; };
  if (std::any_of(op.ints.begin() + static_cast<std::ptrdiff_t>(paddings),
                  op.ints.begin() + static_cast<std::ptrdiff_t>(2 * paddings), cut))
    return false;
  Depthwise s = depthwise_of(op);
  const int64_t near = second_cache_bytes() / static_cast<int64_t>(sizeof(float));
  return s.taps[0] <= kMostDepthwiseTaps && s.room() <= near && fuse_behind(op, &s) &&
         only_multiplied(op.outputs[0]);
}

// Weights or a bias, of each block of channels the taps and of each tap the even channels first.
inline int Region::by_blocks(int tensor, int64_t taps) {
  const int value = plain(tensor);
  const int64_t channels = elements_of(tensor_dims(tensor)) / taps;
  const int64_t blocks = (channels + kDepthwiseBlock - 1) / kDepthwiseBlock;
  const int packed = storage_.owned(row_major({blocks, taps, kDepthwiseBlock}));
  const auto* from =
      reinterpret_cast<const float*>(storage_.group(value).data + storage_.offset(value));
  auto* to = reinterpret_cast<float*>(storage_.group(packed).data);
  std::fill_n(to, blocks * taps * kDepthwiseBlock, 0.f);
  for (int64_t channel = 0; channel < channels; ++channel) {
    const int64_t i = channel % kDepthwiseBlock, place = i / 2 + i % 2 * (kDepthwiseBlock / 2);
    for (int64_t tap = 0; tap < taps; ++tap)
      to[(channel / kDepthwiseBlock * taps + tap) * kDepthwiseBlock + place] =
          from[channel * taps + tap];
  }
  return packed;
}

// Takes what follows into `s`; whether it could.
inline bool Region::fuse_behind(const Op& op, Depthwise* s) const {
  s->least = -std::numeric_limits<float>::infinity();
  s->most = std::numeric_limits<float>::infinity();
  bool first = true;
  for (const PostOp& p : op.post_ops) {
    if (p.is_binary) return false;
    const Link link = link_of(p, desc());
    if (link.what == Link::none) return false;
    if (first && link.what == Link::relu) s->least = 0.f;
    else if (first && link.what == Link::clip) s->least = p.alpha, s->most = p.beta;
    else s->links.push_back(link);
    first = false;
  }
  return true;
}

inline bool Region::conv_by_channel(const Op& op) {
  if (!is_by_channel(op)) return false;
  const dims &x = tensor_dims(op.inputs[0]), &y = tensor_dims(op.outputs[0]);
  const size_t rank = y.size();
  Depthwise s = depthwise_of(op);
  fuse_behind(op, &s);
  s.reads_rounded = is_rounded(op.inputs[0]);
  const auto given = s.reads_rounded ? memory::data_type::bf16 : memory::data_type::f32;
  const int src = in_layout(op.inputs[0], with_tag(x, channels_last(rank), given));
  const int dst = storage_.fresh(with_tag(y, channels_last(rank), memory::data_type::bf16));
  const int64_t taps = s.taps[0] * s.taps[1];
  const int weights = by_blocks(op.inputs[1], taps);
  const int64_t blocks = storage_.md(weights).get_dims()[0];
  const int bias = op.inputs.size() > 2 ? by_blocks(op.inputs[2], 1)
                                        : storage_.owned(row_major({blocks, 1, kDepthwiseBlock}));
  if (op.inputs.size() == 2)
    std::fill_n(reinterpret_cast<float*>(storage_.group(bias).data), blocks * kDepthwiseBlock, 0.f);
  const int rooms = storage_.fresh(row_major({threads_, s.room()}));
  emit_host({{0, src}, {0, weights}, {0, bias}, {0, dst}, {0, rooms}},
            [=, images = y[0]](const std::vector<void*>& data) {
    const auto* packed = static_cast<const float*>(data[1]);
    depthwise(s, images, blocks, {data[0], packed, static_cast<const float*>(data[2]), data[3]},
              static_cast<float*>(data[4]));
  });
  bind(op.outputs[0], dst);
  return true;
}

}  // namespace collage_onednn
