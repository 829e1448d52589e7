// Values between operators as bytes: convolutions of them, and the ways from and to floats.
#pragma once

#include "quantized.h"

namespace collage_onednn {

// A tensor of floats that the plan knows nothing of.
inline int Region::fresh_tensor(const dims& d) {
  plan_.tensors.push_back({Source::computed, 0, 0, d});
  primary_.push_back(-1);
  copies_.emplace_back();
  within_.push_back(-1);
  room_.push_back(-1);
  last_use_.push_back(0);
  return static_cast<int>(primary_.size()) - 1;
}

// A value that holds one number, of float32 or int32.
inline int Region::number(float value, memory::data_type type) {
  const int result = storage_.owned(desc({1}, type, dims{1}));
  char* data = storage_.group(result).data;
  if (type == memory::data_type::f32) {
    std::memcpy(data, &value, sizeof value);
  } else {
    const auto whole = static_cast<int32_t>(value);
    std::memcpy(data, &whole, sizeof whole);
  }
  return result;
}

// Floats that are whole numbers, as bytes; what is beyond their range becomes its end.
inline void Region::store_bytes(int from, int to) {
  const int src = value_of(from);
  const int dst = storage_.fresh(retyped(storage_.md(src), memory::data_type::u8));
  copy(src, dst);
  bind(to, dst);
}

inline void Region::to_floats(int from, int to, float step, float point) {
  const int src = dense(from);
  const int dst = storage_.fresh(retyped(storage_.md(src), memory::data_type::f32));
  dnnl::primitive_attr attr = user_scratchpad();
  attr.set_scales_mask(DNNL_ARG_SRC, 0);
  attr.set_zero_points_mask(DNNL_ARG_SRC, 0);
  dnnl::reorder::primitive_desc pd(engine_, storage_.md(src), engine_, storage_.md(dst), attr);
  emit(pd, dnnl::reorder(pd),
       {{DNNL_ARG_FROM, src},
        {DNNL_ARG_TO, dst},
        {DNNL_ARG_ATTR_SCALES | DNNL_ARG_FROM, number(step, memory::data_type::f32)},
        {DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_FROM, number(point, memory::data_type::s32)}});
  bind(to, dst);
}

// A convolution of bytes with signed ones, sums in 32 bits; a false answer where no kernel does it.
inline bool Region::bytes_conv_in_bytes(const Op& op) {
  using PD = dnnl::convolution_forward::primitive_desc;
  const dims& out = tensor_dims(op.outputs[0]);
  const size_t axes = out.size() - 2;
  const int x = op.inputs[0], w = op.inputs[1];
  const bool biased = op.inputs.size() > 3, grouped = tensor_dims(w).size() > out.size();
  const desc wd = any_layout(tensor_dims(w), memory::data_type::s8);
  const desc bd = biased ? row_major(tensor_dims(op.inputs[3])) : desc();
  const desc dd = any_layout(out, tensor_type(op.outputs[0]));
  dnnl::primitive_attr attr = attributes(op, op.post_ops.size(), -1, true, nullptr);
  attr.set_scales_mask(DNNL_ARG_WEIGHTS, grouped ? 3 : 1);
  if (op.floats[0] != 0.f) attr.set_zero_points_mask(DNNL_ARG_SRC, 0);
  auto make = [&](const desc& src) {
    auto part = [&](size_t i) { return ints_of(op, axes, i); };
    auto kind = dnnl::prop_kind::forward_inference;
    auto direct = dnnl::algorithm::convolution_direct;
    return biased ? PD(engine_, kind, direct, src, wd, bd, dd, part(0), part(1), part(2), part(3),
                       attr, true)
                  : PD(engine_, kind, direct, src, wd, dd, part(0), part(1), part(2), part(3), attr,
                       true);
  };
  const PD pd = make(any_layout(tensor_dims(x), memory::data_type::u8));
  if (!pd.get(true) || is_reference(pd.impl_info_str())) return false;
  const int dst = storage_.fresh(pd.dst_desc());
  Arguments arguments{{DNNL_ARG_SRC, in_layout(x, pd.src_desc())},
                      {DNNL_ARG_DST, dst},
                      {DNNL_ARG_WEIGHTS, in_layout(w, pd.weights_desc())},
                      {DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, value_of(op.inputs[2])}};
  if (op.floats[0] != 0.f)
    arguments.emplace_back(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC,
                           number(op.floats[0], memory::data_type::s32));
  if (biased) arguments.emplace_back(DNNL_ARG_BIAS, in_layout(op.inputs[3], bd));
  attributes(op, op.post_ops.size(), -1, true, &arguments);
  for (size_t i = 0; i < op.post_ops.size(); ++i) {
    const PostOp& p = op.post_ops[i];
    if (p.is_binary && tensor_dims(p.tensor) == out)
      arguments.emplace_back(DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1,
                             in_layout(p.tensor, retyped(pd.dst_desc(), tensor_type(p.tensor))));
  }
  emit(pd, dnnl::convolution_forward(pd), arguments);
  bind(op.outputs[0], dst);
  return true;
}

// Whether oneDNN is wrong: its kernel of depthwise convolutions for AVX2 takes channels by eights, and
// gives garbage for what is left of them (seen in 3.2).
inline bool torn_channels(const dims& weights, const dims& out) {
  constexpr memory::dim kVector = 8;
  return is_depthwise(weights, out.size()) && weights[0] % kVector != 0 &&
         !has_isa(dnnl_cpu_isa_avx512_core);
}

// inputs: x in bytes, weights in signed ones, what a channel's sums are multiplied by, [bias];
// ints as those of a convolution; floats: which byte stands for zero
inline void Region::bytes_conv(const Op& op, size_t at) {
  const dims wanted = tensor_dims(op.inputs[1]), out = tensor_dims(op.outputs[0]);
  if (multiplies_bytes(op.inputs[1]) && !torn_channels(wanted, out) && bytes_conv_in_bytes(op))
    return;
  // In floats: whole numbers still, so that sums are as exact as their digits allow.
  const int x = fresh_tensor(tensor_dims(op.inputs[0])), weights = fresh_tensor(wanted);
  to_floats(op.inputs[0], x, 1.f, op.floats[0]);
  bind(weights, storage_.owned(row_major(wanted)));
  plan_.tensors[static_cast<size_t>(weights)].source = Source::constant;
  auto data = [&](int tensor) { return storage_.group(value_of(tensor)).data; };
  auto* floats = reinterpret_cast<float*>(data(weights));
  const auto* bytes = reinterpret_cast<const int8_t*>(data(op.inputs[1]));
  const auto* scales = reinterpret_cast<const float*>(data(op.inputs[2]));
  const size_t count = tensor_md(op.inputs[1]).get_size(), channels = static_cast<size_t>(out[1]);
  for (size_t i = 0; i < count; ++i) floats[i] = bytes[i] * scales[i / (count / channels)];
  Op plain_one = op;
  plain_one.kind = OpKind::conv;
  plain_one.inputs = {x, weights};
  if (op.inputs.size() > 3) plain_one.inputs.push_back(op.inputs[3]);
  // The kernel reads whole tensors as floats.
  for (auto& p : plain_one.post_ops) {
    if (!p.is_binary || tensor_type(p.tensor) == memory::data_type::f32) continue;
    const int added = fresh_tensor(tensor_dims(p.tensor));
    to_floats(p.tensor, added, 1.f, 0.f);
    p.tensor = added;
    last_use_[static_cast<size_t>(added)] = at;
  }
  const bool stored = tensor_type(op.outputs[0]) == memory::data_type::u8;
  plain_one.outputs = {stored ? fresh_tensor(out) : op.outputs[0]};
  conv<dnnl::convolution_forward>(plain_one, at, dnnl::algorithm::convolution_direct);
  if (stored) store_bytes(plain_one.outputs[0], op.outputs[0]);
}

// A binary operator whose result is rounded to bytes.
inline void Region::bytes_binary(const Op& op) {
  Op plain_one = op;
  plain_one.outputs = {fresh_tensor(tensor_dims(op.outputs[0]))};
  binary(plain_one);
  store_bytes(plain_one.outputs[0], op.outputs[0]);
}

}  // namespace collage_onednn
