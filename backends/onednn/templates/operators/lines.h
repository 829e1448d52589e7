// Convolutions along one axis as those of pictures that are one pixel high.
#pragma once

#include <map>

#include "bytes.h"

namespace collage_onednn {

// The tensor with an axis of one pixel before its last, in the same memory: known until `at`.
inline int Region::one_pixel_high(int tensor, size_t at) {
  dims taller = tensor_dims(tensor);
  taller.insert(taller.end() - 1, 1);
  const bool constant = is_constant(tensor);
  int value = value_of(tensor);
  desc md = storage_.md(value).reshape(taller, true);
  if (!md.get(true)) {
    value = plain(tensor);
    md = row_major(taller);
  }
  const int made = fresh_tensor(taller);
  bind(made, storage_.view(value, md));
  last_use_[static_cast<size_t>(made)] = at;
  if (constant) plan_.tensors[static_cast<size_t>(made)].source = Source::constant;
  return made;
}

inline std::vector<int64_t> unpadded(std::vector<int64_t> ints) {
  std::fill(ints.begin() + 4, ints.end(), 0);
  return ints;
}

// Whether a convolution of pictures is more than products of matrices.
inline bool Region::has_kernel(const dims& x, const dims& w, const dims& out,
                               const std::vector<int64_t>& ints) {
  auto part = [&](size_t i) { return dims(ints.begin() + 2 * i, ints.begin() + 2 * i + 2); };
  dnnl::convolution_forward::primitive_desc pd(
      engine_, dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
      any_layout(x), any_layout(w), any_layout(out), part(0), part(1), part(2), part(3),
      user_scratchpad(), true);
  if (!pd.get(true)) return false;
  const std::string name = pd.impl_info_str();
  return !is_reference(name.c_str()) && name.find("gemm:") == std::string::npos;
}

// With AVX2 oneDNN has kernels for depthwise convolutions of pictures alone: of lines it makes
// products of matrices, one for each channel, which takes ten times as long.
inline void Region::conv_of_line(const Op& op, size_t at) {
  Op picture = op;
  std::map<int, int> made;
  auto higher = [&](int& tensor) {
    if (!made.count(tensor)) made[tensor] = one_pixel_high(tensor, at);
    tensor = made[tensor];
  };
  higher(picture.inputs[0]);
  higher(picture.inputs[1]);
  for (auto& p : picture.post_ops)
    if (p.is_binary) higher(p.tensor);
  // Strides, dilations from 0, and padding before and behind, each of one axis.
  const int64_t height[] = {1, 0, 0, 0};
  picture.ints.clear();
  for (size_t i = 0; i < 4; ++i) picture.ints.insert(picture.ints.end(), {height[i], op.ints[i]});
  dims out = tensor_dims(op.outputs[0]);
  out.insert(out.end() - 1, 1);
  const dims x = tensor_dims(picture.inputs[0]), w = tensor_dims(picture.inputs[1]);
  dims padded = x;
  padded.back() += picture.ints[5] + picture.ints[7];
  if (!has_kernel(x, w, out, picture.ints) && has_kernel(padded, w, out, unpadded(picture.ints))) {
    // Kernels of dilated ones take less padding than a vector has pixels.
    Op pad;
    pad.inputs = {picture.inputs[0]};
    pad.outputs = {fresh_tensor(padded)};
    pad.ints = {0, 0, 0, 0, 0, 0, picture.ints[5], picture.ints[7]};
    pad.floats = {0.f};
    this->pad(pad);
    picture.inputs[0] = pad.outputs[0];
    picture.ints = unpadded(picture.ints);
  }
  picture.outputs = {fresh_tensor(out)};
  conv<dnnl::convolution_forward>(picture, at, dnnl::algorithm::convolution_direct);
  Op back;
  back.inputs = picture.outputs;
  back.outputs = op.outputs;
  reshape(back);
}

}  // namespace collage_onednn
