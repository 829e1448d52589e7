// Operators that keep the layout their input has: pooling, normalizations, elementwise.
#pragma once

#include "chains.h"
#include "fused.h"

namespace collage_onednn {

inline dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

// Whether this was the average of whole pictures whose channels lie last: the library's kernel for
// that leaves all of a picture of few channels to one thread.
inline bool Region::whole_averaged(const Op& op) {
  const dims& in = tensor_dims(op.inputs[0]);
  const size_t rank = in.size();
  if (op.ints[0] == 0 || tensor_type(op.inputs[0]) != memory::data_type::f32 ||
      md_of(op.inputs[0]) != with_tag(in, channels_last(rank)))
    return false;
  int64_t pixels = 1;
  for (size_t i = 2; i < rank; ++i) {
    if (op.ints[i - 1] != in[i] || tensor_dims(op.outputs[0])[i] != 1) return false;
    pixels *= in[i];
  }
  for (size_t i = 1 + 3 * (rank - 2); i < op.ints.size(); ++i)
    if (op.ints[i] != 0) return false;
  const int dst = storage_.fresh(with_tag(tensor_dims(op.outputs[0]), channels_last(rank)));
  reduce(static_cast<int64_t>(Reduced::mean), value_of(op.inputs[0]), dst, {in[0], pixels, in[1]});
  bind(op.outputs[0], dst);
  return true;
}

// ints: algorithm (max, average with padding, without); per spatial axis kernel, strides, dilations,
// before, after
inline void Region::pool(const Op& op) {
  using PD = dnnl::pooling_forward::primitive_desc;
  static const dnnl::algorithm algorithms[] = {dnnl::algorithm::pooling_max,
                                               dnnl::algorithm::pooling_avg_include_padding,
                                               dnnl::algorithm::pooling_avg_exclude_padding};
  const size_t rank = tensor_dims(op.outputs[0]).size();
  auto part = [&](size_t i) { return ints_of(op, rank - 2, i, 1); };
  const auto made = is_rounded(op.inputs[0]) ? memory::data_type::bf16
                                             : tensor_type(op.outputs[0]);
  auto make = [&](const desc& src) {
    return PD(engine_, dnnl::prop_kind::forward_inference, algorithms[op.ints[0]], src,
              any_layout(tensor_dims(op.outputs[0]), made), part(1), part(0), part(2), part(3),
              part(4), user_scratchpad(), true);
  };
  if (whole_averaged(op)) return;
  int src = dense(op.inputs[0]);
  PD pd = make(storage_.md(src));
  if (!pd.get(true) || is_reference(pd.impl_info_str())) {
    PD blocked = make(with_tag(tensor_dims(op.inputs[0]), blocks_of_16(rank),
                               storage_.md(src).get_data_type()));
    if (blocked.get(true) && !is_reference(blocked.impl_info_str())) pd = blocked;
  }
  if (!pd.get(true)) throw std::runtime_error("oneDNN has no such pooling");
  src = in_layout(op.inputs[0], pd.src_desc());
  int dst = storage_.fresh(pd.dst_desc());
  emit(pd, dnnl::pooling_forward(pd), {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
  bind(op.outputs[0], dst);
}

// By the distance of points' middles. ints: algorithm (nearest, linear)
inline void Region::resample(const Op& op) {
  using PD = dnnl::resampling_forward::primitive_desc;
  const auto algorithm = op.ints[0] ? dnnl::algorithm::resampling_linear
                                    : dnnl::algorithm::resampling_nearest;
  auto make = [&](const desc& src) {
    return PD(engine_, dnnl::prop_kind::forward_inference, algorithm, src,
              any_layout(tensor_dims(op.outputs[0]), src.get_data_type()), user_scratchpad(), true);
  };
  int src = dense(op.inputs[0]);
  PD pd = make(storage_.md(src));
  // In other layouts, as grouped convolutions leave a batch in, it computes element by element: a
  // copy takes a hundredth of that.
  const dims& shape = tensor_dims(op.inputs[0]);
  const memory::data_type type = storage_.md(src).get_data_type();
  for (const desc& other :
       {with_tag(shape, channels_last(shape.size()), type), row_major(shape, type)}) {
    if (pd.get(true) && !is_reference(pd.impl_info_str())) break;
    PD copied = make(other);
    if (!copied.get(true) || (pd.get(true) && is_reference(copied.impl_info_str()))) continue;
    src = in_layout(op.inputs[0], other);
    pd = copied;
  }
  if (!pd.get(true)) throw std::runtime_error("oneDNN has no such resampling");
  int dst = storage_.fresh(pd.dst_desc());
  emit(pd, dnnl::resampling_forward(pd), {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
  bind(op.outputs[0], dst);
}

// Over the last dimension. inputs: x, scale, shift; floats: epsilon
inline void Region::layer_norm(const Op& op) {
  using flags = dnnl::normalization_flags;
  using PD = dnnl::layer_normalization_forward::primitive_desc;
  const int src = plain(op.inputs[0]);
  auto make = [&](memory::data_type type) {
    return PD(engine_, dnnl::prop_kind::forward_inference, storage_.md(src),
              row_major(tensor_dims(op.outputs[0]), type), op.floats[0],
              flags::use_scale | flags::use_shift, user_scratchpad(), true);
  };
  PD pd;
  if (rounds_result(op)) pd = make(memory::data_type::bf16);
  if (!pd.get(true) || is_reference(pd.impl_info_str())) pd = make(memory::data_type::f32);
  if (!pd.get(true)) throw std::runtime_error("oneDNN has no such normalization");
  const int dst = storage_.fresh(pd.dst_desc());
  emit(pd, dnnl::layer_normalization_forward(pd),
       {{DNNL_ARG_SRC, src},
        {DNNL_ARG_DST, dst},
        {DNNL_ARG_SCALE, plain(op.inputs[1])},
        {DNNL_ARG_SHIFT, plain(op.inputs[2])}});
  bind(op.outputs[0], dst);
}

// Across channels. ints: size; floats: alpha, beta, k (of oneDNN: alpha is divided by the size)
inline void Region::lrn(const Op& op) {
  int src = dense(op.inputs[0]);
  int dst = storage_.fresh(storage_.md(src));
  dnnl::lrn_forward::primitive_desc pd(
      engine_, dnnl::prop_kind::forward_inference, dnnl::algorithm::lrn_across_channels,
      storage_.md(src), storage_.md(dst), op.ints[0], op.floats[0], op.floats[1], op.floats[2],
      user_scratchpad());
  emit(pd, dnnl::lrn_forward(pd), {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
  bind(op.outputs[0], dst);
}

// inputs: a of the result's shape, b that may be broadcast; ints: algorithm
inline void Region::binary(const Op& op) {
  const int a = op.inputs[0], b = op.inputs[1];
  if (in_chain(op)) return;
  if (is_rounded(a)) return binary(in_float32(op));
  if (op.ints[0] == kPrelu) {
    const int src = dense(a), dst = storage_.fresh(storage_.md(src));
    prelu(src, b, dst);
    bind(op.outputs[0], apply_rest(op, 0, dst));
    return;
  }
  const bool full = tensor_dims(a) == tensor_dims(b);
  int first = dense(a);
  int second = full ? in_layout(b, storage_.md(first)) : broadcast(b, storage_.md(first));
  size_t fused = op.post_ops.size();
  Arguments arguments;
  auto make = [&] {
    arguments.clear();
    return dnnl::binary::primitive_desc(
        engine_, binary_algorithm(op.ints[0]), storage_.md(first), storage_.md(second),
        any_layout(tensor_dims(op.outputs[0])), attributes(op, fused, -1, true, &arguments), true);
  };
  auto poor = [](const dnnl::binary::primitive_desc& pd) {
    return !pd.get(true) || is_reference(pd.impl_info_str());
  };
  auto pd = make();
  while (fused > 0 && poor(pd)) {
    --fused;
    pd = make();
  }
  if (poor(pd)) {
    if (storage_.md(first).get_inner_nblks() > 0) first = plain(a);
    const int dst = storage_.fresh(storage_.md(first));
    strided_binary(op.ints[0], first, b, dst);
    bind(op.outputs[0], apply_rest(op, 0, dst));
    return;
  }
  int dst = storage_.fresh(pd.dst_desc());
  for (size_t i = 0; i < fused; ++i) {
    const PostOp& p = op.post_ops[i];
    if (p.is_binary && tensor_dims(p.tensor) == tensor_dims(op.outputs[0]))
      arguments.emplace_back(DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1,
                             in_layout(p.tensor, pd.dst_desc()));
  }
  arguments.insert(arguments.end(),
                   {{DNNL_ARG_SRC_0, first}, {DNNL_ARG_SRC_1, second}, {DNNL_ARG_DST, dst}});
  emit(pd, dnnl::binary(pd), arguments);
  bind(op.outputs[0], apply_rest(op, fused, dst));
}

// ints: algorithm; floats: alpha, beta
inline void Region::eltwise(const Op& op) {
  const float alpha = op.floats[0], beta = op.floats[1];
  if (in_chain(op)) return;
  if (is_rounded(op.inputs[0])) return eltwise(in_float32(op));
  int src = dense(op.inputs[0]);
  const auto md = storage_.md(src);
  // Channels that fill up a block would no longer be zero.
  if (!in_vectors(op.ints[0], md) &&
      is_reference(eltwise_primitive(op.ints[0], alpha, beta, md).impl_info_str()))
    src = plain(op.inputs[0]);
  const int dst = storage_.fresh(storage_.md(src));
  apply(op.ints[0], alpha, beta, src, dst);
  bind(op.outputs[0], apply_rest(op, 0, dst));
}

// Extents of the result that are 1 are reduced over. ints: algorithm (mean, sum, max, min)
inline void Region::reduction(const Op& op) {
  static const dnnl::algorithm algorithms[] = {
      dnnl::algorithm::reduction_mean, dnnl::algorithm::reduction_sum,
      dnnl::algorithm::reduction_max, dnnl::algorithm::reduction_min};
  if (columns_reduced(op)) return;
  int src = plain(op.inputs[0]);
  int dst = storage_.fresh(row_major(tensor_dims(op.outputs[0])));
  dnnl::reduction::primitive_desc pd(engine_, algorithms[op.ints[0]], storage_.md(src),
                                     storage_.md(dst), 0.f, 0.f, user_scratchpad());
  emit(pd, dnnl::reduction(pd), {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
  bind(op.outputs[0], dst);
}

}  // namespace collage_onednn
