// Depthwise convolutions that make several channels of each: of channels repeated as often.
#pragma once

#include "lines.h"

namespace collage_onednn {

inline dims weights_of_channels(const dims& w) { return {w[0] * w[1], 1, 1, w[3], w[4]}; }

// Whether oneDNN, without a kernel for several channels of each, has one for one of each.
inline bool Region::is_multiplied(const Op& op, const dims& w) {
  dims repeated = tensor_dims(op.inputs[0]);
  // Weights of volumes have as many dimensions without groups.
  if (repeated.size() != 4 || w.size() != 5 || w[1] == 1 || w[2] != 1) return false;
  repeated[1] *= w[1];
  return has_kernel(repeated, weights_of_channels(w), tensor_dims(op.outputs[0]), op.ints);
}

// Its kernels for depthwise convolutions make one channel of each: of several it makes products of
// matrices, for each channel one of as few rows, which takes several times as long as these copies.
inline void Region::conv_of_multiplied(const Op& op, size_t at) {
  const dims x = tensor_dims(op.inputs[0]), w = tensor_dims(op.inputs[1]);
  const memory::dim copies = w[1], pixels = x[2] * x[3];
  Op single = op;
  single.inputs[0] = fresh_tensor({x[0], x[1] * copies, x[2], x[3]});
  const int from = plain(op.inputs[0]);
  const int to = storage_.fresh(row_major(tensor_dims(single.inputs[0])));
  const desc every(x, memory::data_type::f32,
                   dims{x[1] * copies * pixels, copies * pixels, x[3], 1});
  for (memory::dim i = 0; i < copies; ++i)
    copy(from, storage_.view(to, every, static_cast<size_t>(i * pixels) * sizeof(float)));
  bind(single.inputs[0], to);
  last_use_[static_cast<size_t>(single.inputs[0])] = at;

  const bool constant = is_constant(op.inputs[1]);
  const int weights = plain(op.inputs[1]);
  single.inputs[1] = fresh_tensor(weights_of_channels(w));
  bind(single.inputs[1], storage_.view(weights, row_major(weights_of_channels(w))));
  last_use_[static_cast<size_t>(single.inputs[1])] = at;
  if (constant) plan_.tensors[static_cast<size_t>(single.inputs[1])].source = Source::constant;
  conv<dnnl::convolution_forward>(single, at, dnnl::algorithm::convolution_direct);
}

}  // namespace collage_onednn
