// Chains of elementwise operators whose input is a part of longer rows, or whose result products alone
// read: a pass of ours, as no primitive reads the one or rounds to the other.
#pragma once

#include "rounded.h"

namespace collage_onednn {

// Which axis lies innermost: of channels last the second, of row-major tensors the last. None else.
inline size_t Region::innermost(const desc& md) const {
  const dims extents = md.get_dims();
  const size_t rank = extents.size();
  const memory::data_type type = md.get_data_type();
  if (rank >= 3 && rank <= 5 && md == with_tag(extents, channels_last(rank), type)) return 1;
  return md == row_major(extents, type) && rank > 0 ? rank - 1 : rank;
}

inline Link::What link_of_eltwise(dnnl::algorithm function) {
  switch (function) {
    case dnnl::algorithm::eltwise_relu: return Link::relu;
    case dnnl::algorithm::eltwise_clip_v2: return Link::clip;
    case dnnl::algorithm::eltwise_linear: return Link::linear;
    case dnnl::algorithm::eltwise_logistic: return Link::logistic;
    case dnnl::algorithm::eltwise_swish: return Link::swish;
    case dnnl::algorithm::eltwise_gelu_erf: return Link::gelu_erf;
    case dnnl::algorithm::eltwise_gelu_tanh: return Link::gelu_tanh;
    case dnnl::algorithm::eltwise_tanh: return Link::tanh;
    default: return Link::none;
  }
}

// An operator as a link of a chain over a tensor in the layout `md`; `none` where there is none.
inline Link Region::link_of(const PostOp& op, const desc& md) const {
  Link link{Link::none, false, nullptr, 0, op.alpha, op.beta};
  if (!op.is_binary) {
    link.what = link_of_eltwise(eltwise_algorithm(op.algorithm));
    if (link.what == Link::relu && op.alpha != 0.f) link.what = Link::leaky;
    return link;
  }
  static const Link::What binaries[] = {Link::add, Link::sub, Link::mul, Link::div,
                                        Link::max, Link::min, Link::slopes};
  const dims &given = tensor_dims(op.tensor), extents = md.get_dims();
  const size_t axis = innermost(md), from_last = extents.size() - axis;
  const int64_t width = extents[axis], count = elements_of(given);
  if (given == extents) {
    link.pitch = width;
  } else if (count != 1 && (count != width || given.size() < from_last ||
                            given[given.size() - from_last] != width)) {
    return link;
  }
  link.what = binaries[op.algorithm];
  link.by_column = given == extents || count != 1;
  return link;
}

inline std::vector<Link> Region::links_of(const std::vector<PostOp>& steps, const desc& md) const {
  std::vector<Link> links;
  if (!has_vectors() || innermost(md) == md.get_dims().size()) return links;
  for (const PostOp& step : steps) links.push_back(link_of(step, md));
  for (const Link& link : links)
    if (link.what == Link::none) return {};
  return links;
}

// What comes out of `steps` one after the other; `md` is the layout of `from` but for gaps.
inline int Region::chained(int from, const desc& md, const std::vector<PostOp>& steps,
                           const std::vector<Link>& links, bool rounds) {
  const dims extents = md.get_dims();
  const int64_t width = extents[innermost(md)], rows = elements_of(extents) / width;
  const desc given = storage_.md(from);
  const int64_t pitch = given == md ? width : given.get_strides().back();
  const int64_t offset = given.get_submemory_offset();
  const int dst =
      storage_.fresh(retyped(md, rounds ? memory::data_type::bf16 : memory::data_type::f32));
  Arguments arguments{{0, from}, {0, dst}};
  std::vector<size_t> others(steps.size(), 0);  // where an operand is among the arguments
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!steps[i].is_binary) continue;
    others[i] = arguments.size();
    const int tensor = steps[i].tensor;
    const desc exact = retyped(md, memory::data_type::f32);
    arguments.emplace_back(0, links[i].pitch > 0 ? in_layout(tensor, exact) : plain(tensor));
  }
  const bool halves = given.get_data_type() == memory::data_type::bf16;
  const size_t skipped =
      static_cast<size_t>(offset) * memory::data_type_size(given.get_data_type());
  emit_host(arguments, [=](const std::vector<void*>& data) {
    const void* x = static_cast<const char*>(data[0]) + skipped;
    Chain chain{links, x, halves, pitch, width, data[1]};
    for (size_t i = 0; i < links.size(); ++i)
      if (others[i] > 0) chain.links[i].y = static_cast<const float*>(data[others[i]]);
    rows_chained(chain, rows, rounds);
  });
  return dst;
}

// An elementwise operator, and what follows it.
inline std::vector<PostOp> steps_of(const Op& op) {
  std::vector<PostOp> steps{{op.kind == OpKind::binary, op.ints[0], 0.f, 0.f, -1}};
  if (op.kind == OpKind::binary) steps[0].tensor = op.inputs[1];
  else steps[0].alpha = op.floats[0], steps[0].beta = op.floats[1];
  steps.insert(steps.end(), op.post_ops.begin(), op.post_ops.end());
  return steps;
}

// Whether an operator is a chain on a picture that may be rounded before it: one whose result is.
inline bool Region::chains_rounded(const Op& op) {
  if (op.kind != OpKind::binary && op.kind != OpKind::eltwise) return false;
  const dims& out = tensor_dims(op.outputs[0]);
  const size_t rank = out.size();
  return (rank == 4 || rank == 5) && tensor_dims(op.inputs[0]) == out && rounds_result(op) &&
         !links_of(steps_of(op), with_tag(out, channels_last(rank))).empty();
}

// Whether an operator and what follows it were done in one pass.
inline bool Region::in_chain(const Op& op) {
  const int x = op.inputs[0];
  const bool rounds = rounds_result(op);
  if (within_[x] < 0 && !rounds) return false;
  const std::vector<PostOp> steps = steps_of(op);
  const std::vector<Link> links = links_of(steps, md_of(x));
  if (links.empty()) return false;
  const int from = within_[x] >= 0 ? within_[x] : value_of(x);
  bind(op.outputs[0], chained(from, md_of(x), steps, links, rounds));
  return true;
}

// The operator on a float32 copy of what it reads rounded.
inline Op Region::in_float32(const Op& op) {
  Op exact = op;
  exact.inputs[0] = fresh_tensor(tensor_dims(op.inputs[0]));
  bind(exact.inputs[0],
       in_layout(op.inputs[0], retyped(md_of(op.inputs[0]), memory::data_type::f32)));
  return exact;
}

}  // namespace collage_onednn
