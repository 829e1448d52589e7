// Products of tensors in bfloat16, summed in float32. What products alone read is rounded once, by the
// kernel that computes it or in a pass; all else stays float32. Of float32 tensors the library rounds
// what it reads in each kernel where the processor has AMX, and with AVX-512 BF16 alone it multiplies
// them in float32 whatever it is allowed.
#pragma once

#include "../processor.h"
#include "post_ops.h"

namespace collage_onednn {

// Whether a kernel is faster for it: where there are tiles of bfloat16, vectors of it are slower than
// those of float32.
inline bool multiplies_bfloat16(const std::string& implementation) {
  const char* units = has_isa(dnnl_cpu_isa_avx512_core_amx) ? "amx" : "bf16";
  return implementation.find(units) != std::string::npos;
}

// Whether each channel of a picture has taps of its own, and makes one channel.
inline bool is_depthwise(const dims& weights, size_t rank) {
  return weights.size() > rank && weights[1] == 1 && weights[2] == 1;
}

inline int64_t elements_of(const dims& extents) {
  int64_t count = 1;
  for (auto d : extents) count *= d;
  return count;
}

// To round a number takes as long as seven products are faster by.
constexpr int64_t kWorthRounding = 16;

inline bool Region::is_rounded(int tensor) const {
  return md_of(tensor).get_data_type() == memory::data_type::bf16;
}

inline bool Region::multiplies_rounded() const {
  return plan_.precision == Precision::bfloat16 && has_isa(dnnl_cpu_isa_avx512_core_bf16);
}

// Whether every axis has one tap.
inline bool has_one_tap(const dims& weights, size_t axes) {
  return std::all_of(weights.end() - static_cast<std::ptrdiff_t>(axes), weights.end(),
                     [](memory::dim taps) { return taps == 1; });
}

// Whether oneDNN is wrong (seen in 3.2): some kernels for tiles, which take channels by 32, break where
// windows leave gaps or touch, and where a step divides the taps of the last axis.
inline bool torn_windows(const dims& weights, const dims& strides) {
  const size_t first = weights.size() - strides.size();
  if (weights[first - 1] % 32 == 0 || has_one_tap(weights, strides.size())) return false;
  bool apart = weights.back() % strides.back() == 0 && strides.back() > 1;
  for (size_t i = 0; i < strides.size(); ++i)
    apart = apart || (strides[i] > 1 && weights[first + i] <= strides[i]);
  return apart;
}

// Whether it is wrong about float32 tensors, too, that a kernel for tiles rounds as it reads them.
inline bool leaves_gaps(const dims& weights, const dims& strides) {
  const size_t first = weights.size() - strides.size();
  bool gaps = false;
  for (size_t i = 0; i < strides.size(); ++i) gaps = gaps || strides[i] > weights[first + i];
  return gaps && !has_one_tap(weights, strides.size());
}

// Whether a convolution may read rounded numbers. The library's kernels for depthwise ones are as fast
// in float32, and there are none for tiles.
inline bool Region::takes_rounded(const Op& op) {
  if (op.kind != OpKind::conv || scaling_of(op.inputs[1])) return false;
  return !has_isa(dnnl_cpu_isa_avx512_core_amx) || is_by_channel(op) ||
         !is_depthwise(tensor_dims(op.inputs[1]), tensor_dims(op.outputs[0]).size());
}

inline bool Region::rounds_pictures(const Op& op) {
  if (!multiplies_rounded() || !takes_rounded(op)) return false;
  const dims &x = tensor_dims(op.inputs[0]), &w = tensor_dims(op.inputs[1]);
  const dims& out = tensor_dims(op.outputs[0]);
  const int64_t of_result = elements_of(w) / out[1];
  return is_rounded(op.inputs[0]) ||
         elements_of(out) * of_result >= kWorthRounding * elements_of(x);
}

inline bool Region::rounds_matrices(const Op& op) const {
  if (!multiplies_rounded() || op.kind != OpKind::matmul) return false;
  const int a = op.inputs[0], b = op.inputs[1];
  const int64_t left = is_rounded(a) ? 0 : elements_of(tensor_dims(a));
  const int64_t right = is_constant(b) || is_rounded(b) ? 0 : elements_of(tensor_dims(b));
  const int64_t terms = tensor_dims(a).back();
  return elements_of(tensor_dims(op.outputs[0])) * terms >= kWorthRounding * (left + right);
}

// Whether an operator hands on numbers as they are, which are the same rounded before it or behind it,
// or averages a few, which are off by less than what is rounded behind it.
inline bool Region::hands_on(const Op& op) const {
  constexpr int64_t largest = 0, nearest = 0;  // of the algorithms of pooling and resampling
  const dims& given = tensor_dims(op.inputs[0]);
  auto of_whole = [&] { return std::equal(given.begin() + 2, given.end(), op.ints.begin() + 1); };
  switch (op.kind) {
    case OpKind::reshape:
    case OpKind::permute:
    case OpKind::slice:
    case OpKind::concat:
    case OpKind::shuffle: return true;
    case OpKind::pool: return op.ints[0] == largest || !of_whole();
    case OpKind::resample: return op.ints[0] == nearest;
    case OpKind::pad: return op.floats[0] == 0.f;
    default: return false;
  }
}

// Whether a result is read by nothing but products, which round it, as it is, handed on or through a
// chain in pictures, and by convolutions that add it to theirs: as numbers of half the width those take
// half the time to write and to read, which in pictures is more than to multiply them is. What
// matrices' products are added to stays float32: there it costs little, and transformers lose most of
// their digits in it.
inline bool Region::only_multiplied(int tensor) {
  const auto place = static_cast<size_t>(tensor);
  if (multiplied_.size() <= place) multiplied_.resize(plan_.tensors.size());
  std::optional<bool> known = multiplied_[place];
  if (!known) multiplied_[place] = known = is_only_multiplied(tensor);
  return *known;
}

inline bool Region::is_only_multiplied(int tensor) {
  bool read = false;
  for (const Op& op : plan_.ops) {
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i] != tensor) continue;
      if ((hands_on(op) && only_multiplied(op.outputs[0])) || (i == 0 && chains_rounded(op))) {
        read = true;
        continue;
      }
      const bool operand =
          (i == 0 && takes_rounded(op)) || (op.kind == OpKind::matmul && i < 2);
      if (!operand) return false;
      read = true;
    }
    for (const PostOp& p : op.post_ops) {
      if (!p.is_binary || p.tensor != tensor) continue;
      if (!takes_rounded(op) || is_by_channel(op) || !adds_whole(op, p)) return false;
      // To what stays float32 it is added as exact as it is, unless a product rounds it as well.
      read = read || only_multiplied(op.outputs[0]);
    }
  }
  for (int output : plan_.outputs)
    if (output == tensor) return false;
  return read;
}

// Whether what is no product writes its result rounded.
inline bool Region::rounds_result(const Op& op) {
  return multiplies_rounded() && only_multiplied(op.outputs[0]);
}

// What an operator that is no product writes.
inline memory::data_type Region::result_type(const Op& op) {
  return rounds_result(op) ? memory::data_type::bf16 : memory::data_type::f32;
}

// Of a product of rounded numbers whose kernel takes the first `fused` post-operators.
inline Region::Types Region::rounded_types(const Op& op, size_t fused) {
  const auto rounded = memory::data_type::bf16;
  bool whole = fused == op.post_ops.size();
  if (op.kind == OpKind::matmul) whole = whole && find_sum(op, fused, memory::data_type::f32) < 0;
  return {rounded, whole && only_multiplied(op.outputs[0]) ? rounded : memory::data_type::f32};
}

}  // namespace collage_onednn
