// Softmax and its logarithm along one axis.
#pragma once

#include "../vectors/vectors.h"
#include "simple.h"

namespace collage_onednn {

// A permutation of a row-major tensor that has the numbers along an axis side by side.
inline desc axis_last(const dims& d, size_t axis) {
  dims strides(d.size());
  int64_t stride = d[axis];
  for (size_t i = d.size(); i-- > 0;) {
    if (i == axis) continue;
    strides[i] = stride;
    stride *= d[i];
  }
  strides[axis] = 1;
  return desc(d, memory::data_type::f32, strides);
}

inline bool side_by_side(const desc& md, size_t axis) {
  return md.get_inner_nblks() == 0 && md.get_strides()[axis] == 1;
}

// Whether this was a softmax, or its logarithm, of numbers that lie side by side, in vectors of ours.
inline bool Region::rows_shared(const Op& op, int src) {
  const size_t axis = static_cast<size_t>(op.ints[0]);
  const dims& shape = tensor_dims(op.inputs[0]);
  if (shape[axis] == 1 || !has_vectors()) return false;
  const desc md = storage_.md(src);
  const bool logarithm = op.ints[1] != 0;
  if (!side_by_side(md, axis)) return false;
  const int dst = storage_.fresh(md);
  const int64_t count = shape[axis], rows = elements_of(shape) / count;
  emit_host({{0, src}, {0, dst}}, [rows, count, logarithm](const std::vector<void*>& data) {
    softmax_of_rows(static_cast<const float*>(data[0]), static_cast<float*>(data[1]), rows, count,
                    logarithm);
  });
  bind(op.outputs[0], dst);
  return true;
}

// The library's own logarithms are off by some ten units in the last place: 20 times what PyTorch's
// are, on every instruction set. So they are taken here, one for each row.
inline void Region::log_softmax(const Op& op, int src) {
  const size_t axis = static_cast<size_t>(op.ints[0]);
  const dims& shape = tensor_dims(op.inputs[0]);
  const int64_t count = shape[axis], rows = elements_of(shape) / count;
  if (!side_by_side(storage_.md(src), axis)) src = in_layout(op.inputs[0], axis_last(shape, axis));
  if (rows_shared(op, src)) return;
  const desc md = storage_.md(src);
  const int dst = storage_.fresh(md);
  bind(op.outputs[0], dst);
  const dnnl::softmax_forward::primitive_desc pd(
      engine_, dnnl::prop_kind::forward_inference, dnnl::algorithm::softmax_accurate, md, md,
      static_cast<int>(axis), user_scratchpad());
  const int shares = storage_.fresh(md);
  emit(pd, dnnl::softmax_forward(pd), {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, shares}});
  emit_host({{0, src}, {0, shares}, {0, dst}}, [rows, count](const std::vector<void*>& data) {
    logarithms_of_rows(static_cast<const float*>(data[0]), static_cast<const float*>(data[1]),
                       static_cast<float*>(data[2]), rows, count);
  });
}

// ints: axis, whether its logarithm is wanted
inline void Region::softmax(const Op& op) {
  int src = dense(op.inputs[0]);
  if (op.ints[1]) return log_softmax(op, src);
  if (rows_shared(op, src)) return;
  using PD = dnnl::softmax_forward::primitive_desc;
  auto make = [&](const desc& md) {
    return PD(engine_, dnnl::prop_kind::forward_inference, dnnl::algorithm::softmax_accurate, md,
              md, static_cast<int>(op.ints[0]), user_scratchpad());
  };
  PD pd = make(storage_.md(src));
  if (is_reference(pd.impl_info_str())) {
    // The kernel wants the axis innermost, but for a few layouts of images.
    const desc turned = axis_last(tensor_dims(op.inputs[0]), static_cast<size_t>(op.ints[0]));
    PD other = make(turned);
    if (!is_reference(other.impl_info_str())) {
      src = in_layout(op.inputs[0], turned);
      pd = other;
    }
  }
  const int dst = storage_.fresh(storage_.md(src));
  emit(pd, dnnl::softmax_forward(pd), {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
  bind(op.outputs[0], dst);
}

}  // namespace collage_onednn
