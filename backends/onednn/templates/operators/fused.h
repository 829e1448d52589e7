// Convolution and matmul with their fused chains.
#pragma once

#include <algorithm>
#include <type_traits>

#include "../long_sums.h"
#include "../scaled_weights.h"
#include "rounded.h"
#include "winograd.h"

namespace collage_onednn {

// Whether a transpose may sum in several blocks, of channels or of taps. In oneDNN 3.2 strided ones
// apply what is fused after each of them, which is wrong: from 385 to 512 channels on by the kernel's
// own choice, and where the weights of 64 channels of the result are more than its cache.
inline bool sums_in_blocks(const dims& weights, const dims& strides, memory::dim inputs) {
  if (std::all_of(strides.begin(), strides.end(), [](memory::dim s) { return s == 1; }))
    return false;
  memory::dim taps = 1;
  for (size_t i = weights.size() - strides.size(); i < weights.size(); ++i) taps *= weights[i];
  const memory::dim outputs = weights[weights.size() - strides.size() - 2];
  const memory::dim together = std::min<memory::dim>(64, (outputs + 15) / 16 * 16);
  const memory::dim bytes = taps * inputs * together * static_cast<memory::dim>(sizeof(float));
  return inputs > 256 || 2 * bytes >= second_cache_bytes();
}

// A convolution or its transpose, of images with one to three spatial axes.
// inputs: x, weights (grouped ones have a leading group dimension), [bias];
// ints: strides, dilations (oneDNN's, from 0), padding before, padding after (each per axis)
template <class Primitive>
inline void Region::conv(const Op& op, size_t at, dnnl::algorithm algorithm) {
  using PD = typename Primitive::primitive_desc;
  constexpr bool transposed = std::is_same_v<Primitive, dnnl::deconvolution_forward>;
  const size_t rank = tensor_dims(op.outputs[0]).size(), axes = rank - 2;
  const dims strides = ints_of(op, axes, 0), dilations = ints_of(op, axes, 1);
  const dims before = ints_of(op, axes, 2), after = ints_of(op, axes, 3);
  const int x = op.inputs[0], w = op.inputs[1];
  const Op* scaling = scaling_of(w);
  const memory::dim groups = tensor_dims(w).size() > rank ? tensor_dims(w)[0] : 1;
  const bool blocks =
      transposed && sums_in_blocks(tensor_dims(w), strides, tensor_dims(x)[1] / groups);
  const bool has_bias = op.inputs.size() > 2, biased = has_bias && !blocks;
  const dims& out = tensor_dims(op.outputs[0]);
  const desc bd = biased ? row_major(tensor_dims(op.inputs[2])) : desc();
  Types types;
  const bool gaps = !transposed && leaves_gaps(tensor_dims(w), strides);
  auto make = [&](const desc& src, const desc& dst, dnnl::primitive_attr attr) {
    auto kind = dnnl::prop_kind::forward_inference;
    if (gaps) attr.set_fpmath_mode(dnnl::fpmath_mode::strict);
    const desc wd = any_layout(tensor_dims(w), types.operands);
    return biased ? PD(engine_, kind, algorithm, src, wd, bd, dst, strides, dilations, before,
                       after, attr, true)
                  : PD(engine_, kind, algorithm, src, wd, dst, strides, dilations, before, after,
                       attr, true);
  };
  auto good = [](const PD& pd) {
    if (!pd.get(true)) return false;
    std::string name = pd.impl_info_str();
    // Transposes have kernels of their own, or are the gradient of a convolution, which is slower.
    if (transposed) return name.rfind("brg", 0) == 0;
    return !is_reference(name.c_str()) && name.find("gemm:") == std::string::npos;
  };
  auto in_bfloat16 = [&](const PD& pd) {
    const std::string name = pd.impl_info_str();
    const bool torn = types.rounded() && name.rfind("brg", 0) == 0 &&
                      name.find("amx") != std::string::npos &&
                      torn_windows(tensor_dims(w), strides);
    return plan_.precision == Precision::bfloat16 && multiplies_bfloat16(name) && !torn;
  };
  auto given = [&](tag t) { return desc(tensor_dims(x), types.operands, t); };
  auto made = [&](tag t) { return desc(out, types.result, t); };
  const bool exact = !transposed && plan_.layout == Layout::automatic &&
                     plan_.precision == Precision::float32 &&
                     sums_long(tensor_dims(w), out, strides);
  // The layout the input has, unless the kernel would be a bad one in it: then whatever is best.
  auto choose = [&](const dnnl::primitive_attr& attr) {
    if (exact) {
      const tag t = blocks_of_16(rank);
      PD blocked = make(given(t), made(t), attr);
      if (good(blocked)) return blocked;
    }
    if (plan_.layout == Layout::blocked || plan_.layout == Layout::nhwc) {
      tag t = plan_.layout == Layout::nhwc ? channels_last(rank) : blocks_of_16(rank);
      PD forced = make(given(t), made(t), attr);
      if (good(forced) && (!types.rounded() || in_bfloat16(forced))) return forced;
    } else if (plan_.layout == Layout::plain) {
      PD forced = make(row_major(tensor_dims(x), types.operands), row_major(out, types.result),
                       attr);
      if (forced.get(true) && !is_reference(forced.impl_info_str())) return forced;
    }
    PD best = make(given(tag::any), made(tag::any), attr);
    // There are kernels for plain NCHW, but with more than a picture's channels they are slow.
    bool slow_here = md_of(x) == row_major(tensor_dims(x)) && tensor_dims(x)[1] > 4;
    const desc where = retyped(md_of(x), types.operands);
    if (best.get(true) && best.src_desc() != where && !slow_here) {
      PD here = make(where, made(tag::any), attr);
      // Kernels for bfloat16 want pictures channels last; to have one is worth a copy.
      if (good(here) && (in_bfloat16(here) || !in_bfloat16(best))) return here;
    }
    if (!good(best)) {
      // Grouped ones of odd width: oneDNN offers a product per group before its NHWC kernel.
      tag t = channels_last(rank);
      PD last = make(given(t), made(t), attr);
      if (good(last)) return last;
    }
    return best;
  };
  // The gradient's kernels leave post-operators to a loop over single elements.
  auto usable = [&](const PD& pd) {
    return pd.get(true) && (transposed ? good(pd) : !is_reference(pd.impl_info_str()));
  };
  size_t fused = blocks ? 0 : worth_fusing(op);
  int sum_at = -1;
  PD pd;
  auto attempt = [&] {
    sum_at = find_sum(op, fused, types.result);
    pd = choose(attributes(op, fused, sum_at, true, nullptr));
  };
  if (!transposed && rounds_pictures(op)) {
    types = rounded_types(op, fused);
    attempt();
    if (!usable(pd) || !good(pd) || !in_bfloat16(pd)) types = Types();
  }
  if (!types.rounded()) attempt();
  while (fused > 0 && !usable(pd)) {
    --fused;
    attempt();
  }
  if (!pd.get(true)) throw std::runtime_error("oneDNN has no such convolution");
  if (!transposed && !scaling && !good(pd)) {
    if (axes == 1) return conv_of_line(op, at);
    if (is_multiplied(op, tensor_dims(w))) return conv_of_multiplied(op, at);
  }
  // Long sums along one axis are twice as far off in tiles as in blocks.
  const bool tiled = !scaling && !(exact && axes == 1);
  if constexpr (!transposed)
    if (tiled && conv_in_tiles(op, at, pd.src_desc(), pd.dst_desc())) return;

  int src = in_layout(x, pd.src_desc());
  int dst = -1;
  if (sum_at >= 0) {
    int residual = in_layout(op.post_ops[sum_at].tensor, pd.dst_desc());
    if (overwritable(residual, at, {src}) && !read_twice(op, sum_at)) {
      dst = storage_.view(residual, pd.dst_desc());
    } else {
      sum_at = -1;
      PD other = make(pd.src_desc(), pd.dst_desc(), attributes(op, fused, -1, true, nullptr));
      if (!usable(other)) {
        // The kernel cannot read a second tensor: sum onto a copy of it.
        dst = storage_.fresh(pd.dst_desc());
        copy(residual, dst);
        sum_at = find_sum(op, fused, types.result);
      } else {
        pd = other;
      }
    }
  }
  if (dst < 0) dst = storage_.fresh(pd.dst_desc());
  Arguments arguments{{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}};
  const desc packed = pd.weights_desc();
  arguments.emplace_back(DNNL_ARG_WEIGHTS,
                         scaling ? scaled_weights(*scaling, packed) : in_layout(w, packed));
  if (biased) arguments.emplace_back(DNNL_ARG_BIAS, in_layout(op.inputs[2], bd));
  attributes(op, fused, sum_at, true, &arguments);
  for (size_t i = 0; i < fused; ++i) {
    const PostOp& p = op.post_ops[i];
    if (!p.is_binary || static_cast<int>(i) == sum_at || tensor_dims(p.tensor) != out) continue;
    const desc wanted = retyped(pd.dst_desc(), md_of(p.tensor).get_data_type());
    arguments.emplace_back(DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1,
                           in_layout(p.tensor, wanted));
  }
  emit(pd, Primitive(pd), arguments);
  if (has_bias && !biased) add_bias(op.inputs[2], dst);
  bind(op.outputs[0], apply_rest(op, fused, dst));
}

// Whether products with these weights are exact in bytes. Without VNNI two of them are added in 16
// bits, which holds 2 * 255 * 64 and not much more: beyond it sums saturate.
inline bool Region::multiplies_bytes(int weights) {
  if (has_isa(dnnl_cpu_isa_avx512_core_vnni) || has_isa(dnnl_cpu_isa_avx2_vnni)) return true;
  if (!has_isa(dnnl_cpu_isa_avx2) || !is_constant(weights)) return false;
  const auto* bytes = reinterpret_cast<const int8_t*>(storage_.group(value_of(weights)).data);
  const size_t count = tensor_md(weights).get_size();
  return std::all_of(bytes, bytes + count, [](int8_t w) { return -64 <= w && w <= 64; });
}

// inputs: a, b, [bias of the result's rank]; ints: the order of the result's dimensions in memory.
// Of bytes: a, b, the scales of b's columns, the step of a and where its zero is, [bias]
inline void Region::matmul(const Op& op, size_t at) {
  using PD = dnnl::matmul::primitive_desc;
  const int a = op.inputs[0], b = op.inputs[1];
  const bool of_bytes = op.kind == OpKind::bytes_matmul;
  const bool in_bytes = of_bytes && multiplies_bytes(b);
  const size_t fixed = of_bytes ? 5 : 2;
  const bool biased = op.inputs.size() > fixed;
  const dims& out = tensor_dims(op.outputs[0]);
  dims ordered, strides(out.size());
  for (auto axis : op.ints) ordered.push_back(out[static_cast<size_t>(axis)]);
  int64_t stride = 1;
  for (size_t i = out.size(); i-- > 0; stride *= ordered[i])
    strides[static_cast<size_t>(op.ints[i])] = stride;
  Types types;
  // Rows or columns without gaps can be read as they are; anything else is copied first.
  auto readable = [&](int tensor) {
    const desc md = md_of(tensor);
    size_t rank = tensor_dims(tensor).size();
    dims s = md.get_strides();
    bool strided = md.get_inner_nblks() == 0 && md.get_submemory_offset() == 0;
    const bool lies = strided && rank >= 2 && (s[rank - 1] == 1 || s[rank - 2] == 1);
    return retyped(lies ? md : tensor_md(tensor), types.of(tensor_type(tensor)));
  };
  auto read = [&](int tensor) {
    const desc md = readable(tensor);
    return md == tensor_md(tensor) ? plain(tensor) : in_layout(tensor, md);
  };
  const bool in_floats = of_bytes && !in_bytes;
  const bool packed = is_constant(b) && !in_floats;
  desc ad, wd;
  auto describe = [&] {
    ad = readable(a);
    wd = packed ? desc(tensor_dims(b), types.of(tensor_type(b)), tag::any) : readable(b);
  };
  describe();
  const desc bd = biased ? row_major(tensor_dims(op.inputs[fixed])) : desc();
  auto make = [&](dnnl::primitive_attr attr) {
    const desc dst_md(out, types.result, strides);
    if (in_bytes) {
      attr.set_scales_mask(DNNL_ARG_SRC, 0);
      attr.set_scales_mask(DNNL_ARG_WEIGHTS, 1 << 1);
      attr.set_zero_points_mask(DNNL_ARG_SRC, 0);
    }
    return biased ? PD(engine_, ad, wd, bd, dst_md, attr, true)
                  : PD(engine_, ad, wd, dst_md, attr, true);
  };
  // The reference alone writes some orders, as that with batches side by side: let who reads it copy.
  const dims rows = row_major(out).get_strides();
  if (strides != rows) {
    const PD ordered = make(attributes(op, 0, -1, false, nullptr));
    if (!ordered.get(true) || is_reference(ordered.impl_info_str())) strides = rows;
  }
  size_t fused = worth_fusing(op);
  if (rounds_matrices(op)) {
    types = rounded_types(op, fused);
    describe();
    const PD pd = make(attributes(op, fused, find_sum(op, fused, types.result), false, nullptr));
    if (!pd.get(true) || !multiplies_bfloat16(pd.impl_info_str())) types = Types();
    describe();
  }
  const int src = in_floats ? floats_of_bytes(op) : read(a);
  const int weights = in_floats ? floats_of_weights(op) : packed ? value_of(b) : read(b);
  if (in_floats) ad = storage_.md(src), wd = storage_.md(weights);
  const desc dst_md(out, types.result, strides);
  int sum_at = find_sum(op, fused, types.result);
  int dst = -1;
  if (sum_at >= 0) {
    int residual = in_layout(op.post_ops[sum_at].tensor, dst_md);
    if (overwritable(residual, at, {src, weights}) && !read_twice(op, sum_at))
      dst = storage_.view(residual, dst_md);
    else
      sum_at = -1;
  }
  Arguments arguments;
  auto attempt = [&] {
    arguments.clear();
    if (sum_at >= static_cast<int>(fused)) sum_at = dst = -1;
    return make(attributes(op, fused, sum_at, false, &arguments));
  };
  PD pd = attempt();
  while (fused > 0 && (!pd.get(true) || is_reference(pd.impl_info_str()))) {
    --fused;
    pd = attempt();
  }
  if (!pd.get(true)) throw std::runtime_error("oneDNN has no such matmul");
  if (dst < 0) dst = storage_.fresh(dst_md);
  arguments.emplace_back(DNNL_ARG_SRC, src);
  arguments.emplace_back(DNNL_ARG_WEIGHTS, packed ? in_layout(b, pd.weights_desc()) : weights);
  if (biased) arguments.emplace_back(DNNL_ARG_BIAS, in_layout(op.inputs[fixed], bd));
  if (in_bytes) {
    arguments.emplace_back(DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, value_of(op.inputs[2]));
    arguments.emplace_back(DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, value_of(op.inputs[3]));
    arguments.emplace_back(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, value_of(op.inputs[4]));
  }
  arguments.emplace_back(DNNL_ARG_DST, dst);
  emit(pd, dnnl::matmul(pd), arguments);
  bind(op.outputs[0], apply_rest(op, fused, dst));
}

}  // namespace collage_onednn
