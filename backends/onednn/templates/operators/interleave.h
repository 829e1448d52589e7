// Phases of a transposed convolution, each with channels of its own, put together.
#pragma once

#include "select.h"

namespace collage_onednn {

// ints: groups of channels, strides, what is cut off before (each per axis). The phases of a group
// stand before its channels, as the axes do.
inline void Region::interleave(const Op& op) {
  const dims& out = tensor_dims(op.outputs[0]);
  const dims& given = tensor_dims(op.inputs[0]);
  const size_t rank = out.size(), axes = rank - 2;
  Phases phases{out[0], out[1], op.ints[0], given[1], {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, {1, 1, 1},
                out[1] <= 4};  // Pictures of few channels are wanted in planes, by convolutions too.
  for (size_t i = 0; i < axes; ++i) {
    const size_t axis = 3 - axes + i;
    phases.stride[axis] = op.ints[1 + i];
    phases.cut[axis] = op.ints[1 + axes + i];
    phases.from[axis] = given[2 + i];
    phases.to[axis] = out[2 + i];
  }
  const int src = in_layout(op.inputs[0], with_tag(given, channels_last(rank)));
  const int dst = storage_.fresh(phases.by_planes ? tensor_md(op.outputs[0])
                                                  : with_tag(out, channels_last(rank)));
  emit_host({{0, src}, {0, dst}}, [=](const std::vector<void*>& data) {
    interleave_phases(phases, static_cast<const float*>(data[0]), static_cast<float*>(data[1]));
  });
  bind(op.outputs[0], dst);
}

}  // namespace collage_onednn
