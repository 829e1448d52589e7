// What follows a product: as attributes of its primitive where that can take it, else in place.
#pragma once

#include "../building.h"
#include "../processor.h"
#include "../vectors/vectors.h"

namespace collage_onednn {

inline dnnl::algorithm eltwise_algorithm(int64_t index) {
  using a = dnnl::algorithm;  // same order as Eltwise in graph.py
  static const a table[] = {a::eltwise_relu,     a::eltwise_clip_v2,  a::eltwise_logistic,
                            a::eltwise_tanh,     a::eltwise_gelu_erf, a::eltwise_gelu_tanh,
                            a::eltwise_swish,    a::eltwise_hardswish, a::eltwise_hardsigmoid,
                            a::eltwise_exp,      a::eltwise_sqrt,     a::eltwise_square,
                            a::eltwise_linear,   a::eltwise_pow,      a::eltwise_abs,
                            a::eltwise_log,      a::eltwise_elu,      a::eltwise_round,
                            a::eltwise_soft_relu, a::eltwise_mish};
  return table[index];
}

inline dnnl::algorithm binary_algorithm(int64_t index) {
  using a = dnnl::algorithm;  // same order as Binary in graph.py
  static const a table[] = {a::binary_add, a::binary_sub, a::binary_mul,
                            a::binary_div, a::binary_max, a::binary_min};
  return table[index];
}

constexpr int64_t kBinaryAdd = 0;
constexpr int64_t kPrelu = 6;
constexpr int kByChannel = 1 << 1;  // slopes' mask

inline bool Region::adds_whole(const Op& op, const PostOp& p) const {
  return p.is_binary && p.algorithm == kBinaryAdd &&
         tensor_dims(p.tensor) == tensor_dims(op.outputs[0]);
}

// Where the first `fused` post-operators hold an addition of a whole tensor of the result's type,
// which could be done in place on that tensor's memory.
inline int Region::find_sum(const Op& op, size_t fused, memory::data_type type) const {
  for (size_t i = 0; i < fused; ++i) {
    const PostOp& p = op.post_ops[i];
    if (adds_whole(op, p) && !is_constant(p.tensor) && md_of(p.tensor).get_data_type() == type)
      return static_cast<int>(i);
  }
  return -1;
}

// Whether another post-operator reads the memory that the one at `sum_at` would be done in place on.
inline bool Region::read_twice(const Op& op, int sum_at) {
  int tensor = op.post_ops[static_cast<size_t>(sum_at)].tensor;
  for (size_t i = 0; i < op.post_ops.size(); ++i) {
    const PostOp& p = op.post_ops[i];
    if (!p.is_binary || static_cast<int>(i) == sum_at) continue;
    if (storage_.group_id(value_of(p.tensor)) == storage_.group_id(value_of(tensor))) return true;
  }
  return false;
}

// Attributes for the first `fused` post-operators. Operands of the full shape take the layout of the
// result: `full_any` leaves it open; their arguments are then added once the layout is known.
inline dnnl::primitive_attr Region::attributes(const Op& op, size_t fused, int sum_at,
                                               bool full_any, Arguments* arguments) {
  dnnl::post_ops ops;
  for (size_t i = 0; i < fused; ++i) {
    const PostOp& p = op.post_ops[i];
    if (!p.is_binary) {
      ops.append_eltwise(eltwise_algorithm(p.algorithm), p.alpha, p.beta);
    } else if (static_cast<int>(i) == sum_at) {
      ops.append_sum(1.f);
    } else if (p.algorithm == kPrelu) {
      ops.append_prelu(kByChannel);
      if (arguments)
        arguments->emplace_back(
            DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_WEIGHTS,
            plain(p.tensor));
    } else if (full_any && tensor_dims(p.tensor) == tensor_dims(op.outputs[0])) {
      ops.append_binary(binary_algorithm(p.algorithm),
                        any_layout(tensor_dims(p.tensor), md_of(p.tensor).get_data_type()));
    } else {
      int value = plain(p.tensor);
      ops.append_binary(binary_algorithm(p.algorithm), storage_.md(value));
      if (arguments)
        arguments->emplace_back(
            DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1, value);
    }
  }
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  // Products of numbers rounded to bfloat16, summed in float32, where the processor has them.
  if (plan_.precision == Precision::bfloat16) attr.set_fpmath_mode(dnnl::fpmath_mode::bf16);
  attr.set_post_ops(ops);
  return attr;
}

// `src`, a dense value, where it is positive, else times the slope of its channel; `dst` has its
// layout or is it.
inline void Region::prelu(int src, int slopes, int dst) {
  const desc md = storage_.md(src);
  if (md.get_inner_nblks() == 0) return strided_binary(kPrelu, src, slopes, dst);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const int weights = broadcast(slopes, md);
  dnnl::prelu_forward::primitive_desc pd(engine_, dnnl::prop_kind::forward_inference, md,
                                         storage_.md(weights), md, attr);
  emit(pd, dnnl::prelu_forward(pd),
       {{DNNL_ARG_SRC, src}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, dst}});
}

// A loop of ours for an elementwise function of a value in this layout; none where a primitive is to
// compute it. What fills up a block of channels has to stay zero.
inline VectorFunction Region::in_vectors(int64_t algorithm, const desc& md) {
  if (md.get_data_type() != memory::data_type::f32) return nullptr;
  size_t padded = sizeof(float);
  for (auto d : md.get_padded_dims()) padded *= static_cast<size_t>(d);
  const bool gaps = md.get_size() != padded || md.get_submemory_offset() != 0;
  const bool fills = md.get_padded_dims() != md.get_dims();
  const auto function = dnnl::convert_to_c(eltwise_algorithm(algorithm));
  return gaps || (fills && !keeps_zero(function)) ? nullptr : vector_function(function);
}

// How many post-operators a product's kernel is to take: those before a function that is computed
// faster behind it.
inline size_t Region::worth_fusing(const Op& op) {
  const desc result = tensor_md(op.outputs[0]);
  if (!is_pass_cheap(result.get_size() / static_cast<size_t>(threads_), second_cache_bytes() / 2))
    return op.post_ops.size();
  const dims& shape = tensor_dims(op.outputs[0]);
  const bool convolved = op.kind == OpKind::conv || op.kind == OpKind::deconv;
  const bool blocks = convolved && shape[1] % 16 != 0;
  for (size_t i = 0; i < op.post_ops.size(); ++i) {
    const PostOp& p = op.post_ops[i];
    if (p.is_binary || !in_vectors(p.algorithm, result)) continue;
    if (!blocks || keeps_zero(dnnl::convert_to_c(eltwise_algorithm(p.algorithm)))) return i;
  }
  return op.post_ops.size();
}

inline dnnl::eltwise_forward::primitive_desc Region::eltwise_primitive(int64_t algorithm,
                                                                       float alpha, float beta,
                                                                       const desc& md) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return {engine_, dnnl::prop_kind::forward_inference, eltwise_algorithm(algorithm), md, md, alpha,
          beta, attr};
}

// An elementwise function of a value without gaps into another of its layout, or in place.
inline void Region::apply(int64_t algorithm, float alpha, float beta, int src, int dst) {
  const desc md = storage_.md(src);
  const VectorFunction function = in_vectors(algorithm, md);
  if (!function) {
    const auto pd = eltwise_primitive(algorithm, alpha, beta, md);
    return emit(pd, dnnl::eltwise_forward(pd), {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
  }
  const auto count = static_cast<int64_t>(md.get_size() / sizeof(float));
  emit_host({{0, src}, {0, dst}}, [function, count, alpha](const std::vector<void*>& data) {
    apply_in_pieces(function, static_cast<const float*>(data[0]), static_cast<float*>(data[1]),
                    count, alpha);
  });
}

// Post-operators that the kernel did not take, as steps of their own, in place, or in one pass whose
// result is rounded. Gives the result.
inline int Region::apply_rest(const Op& op, size_t fused, int value) {
  if (fused == op.post_ops.size()) return value;
  if (rounds_result(op)) {
    const std::vector<PostOp> rest(op.post_ops.begin() + static_cast<std::ptrdiff_t>(fused),
                                   op.post_ops.end());
    const std::vector<Link> links = links_of(rest, storage_.md(value));
    if (!links.empty()) return chained(value, storage_.md(value), rest, links, true);
  }
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const desc md = storage_.md(value);
  for (size_t i = fused; i < op.post_ops.size(); ++i) {
    const PostOp& p = op.post_ops[i];
    if (!p.is_binary) {
      apply(p.algorithm, p.alpha, p.beta, value, value);
      continue;
    }
    if (p.algorithm == kPrelu) {
      prelu(value, p.tensor, value);
      continue;
    }
    bool full = tensor_dims(p.tensor) == md.get_dims();
    int other = full ? in_layout(p.tensor, md) : broadcast(p.tensor, md);
    dnnl::binary::primitive_desc pd(engine_, binary_algorithm(p.algorithm), md,
                                    storage_.md(other), md, attr);
    if (is_reference(pd.impl_info_str()) && md.get_inner_nblks() == 0) {
      strided_binary(p.algorithm, value, p.tensor, value);
      continue;
    }
    emit(pd, dnnl::binary(pd),
         {{DNNL_ARG_SRC_0, value}, {DNNL_ARG_SRC_1, other}, {DNNL_ARG_DST, value}});
  }
  return value;
}

// A bias of channels that the kernel could not take, in place.
inline void Region::add_bias(int tensor, int value) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const desc md = storage_.md(value);
  dims ones(md.get_dims().size(), 1);
  ones[1] = tensor_dims(tensor)[0];
  const int bias = storage_.view(plain(tensor), row_major(ones));
  dnnl::binary::primitive_desc pd(engine_, dnnl::algorithm::binary_add, md, storage_.md(bias), md,
                                  attr);
  emit(pd, dnnl::binary(pd),
       {{DNNL_ARG_SRC_0, value}, {DNNL_ARG_SRC_1, bias}, {DNNL_ARG_DST, value}});
}

}  // namespace collage_onednn
