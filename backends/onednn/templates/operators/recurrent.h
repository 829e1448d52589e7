// Layers of LSTM, GRU and RNN, all steps in one primitive.
#pragma once

#include "softmax.h"

namespace collage_onednn {

// Multiply-adds of a step that one thread does alone: ten microseconds. All threads meet at every
// step, and beside other programs that takes longer than the step.
constexpr int64_t kAloneProducts = 1 << 19;

template <class Primitive>
void Region::layer(const Op& op, const typename Primitive::primitive_desc& pd) {
  Arguments arguments{
      {DNNL_ARG_SRC_LAYER, plain(op.inputs[0])},
      {DNNL_ARG_WEIGHTS_LAYER, in_layout(op.inputs[1], pd.weights_layer_desc())},
      {DNNL_ARG_WEIGHTS_ITER, in_layout(op.inputs[2], pd.weights_iter_desc())},
      {DNNL_ARG_BIAS, plain(op.inputs[3])},
      {DNNL_ARG_SRC_ITER, plain(op.inputs[4])}};
  if (op.inputs.size() > 5) arguments.emplace_back(DNNL_ARG_SRC_ITER_C, plain(op.inputs[5]));
  static const int results[] = {DNNL_ARG_DST_LAYER, DNNL_ARG_DST_ITER, DNNL_ARG_DST_ITER_C};
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    int dst = storage_.fresh(row_major(tensor_dims(op.outputs[i])));
    arguments.emplace_back(results[i], dst);
    bind(op.outputs[i], dst);
  }
  emit(pd, Primitive(pd), arguments);
}

// inputs: x, its weights, the state's weights, bias, h0, [c0]; outputs: all hidden states, the last
// ones, [the last cell states]; ints: cell, direction (forward, reverse, both side by side)
inline void Region::recurrent(const Op& op) {
  using dnnl::rnn_direction;
  static const rnn_direction directions[] = {rnn_direction::unidirectional_left2right,
                                             rnn_direction::unidirectional_right2left,
                                             rnn_direction::bidirectional_concat};
  const auto kind = dnnl::prop_kind::forward_inference;
  const auto way = directions[op.ints[1]];
  const auto attr = user_scratchpad();
  auto in = [&](size_t i) { return row_major(tensor_dims(op.inputs[i])); };
  auto out = [&](size_t i) { return row_major(tensor_dims(op.outputs[i])); };
  auto packed = [&](size_t i) { return any_layout(tensor_dims(op.inputs[i])); };
  const dims& weights = tensor_dims(op.inputs[2]);  // (1, directions, hidden, gates, hidden)
  const int64_t batch = tensor_dims(op.inputs[0])[1];
  if (batch * weights[2] * weights[3] * weights[4] < kAloneProducts) use_threads(0);
  switch (op.ints[0]) {  // same order as CELLS in operators/recurrent.py
    case 0:
      return layer<dnnl::lstm_forward>(
          op, {engine_, kind, way, in(0), in(4), in(5), packed(1), packed(2), in(3), out(0), out(1),
               out(2), attr});
    case 1:
      return layer<dnnl::gru_forward>(op, {engine_, kind, way, in(0), in(4), packed(1), packed(2),
                                           in(3), out(0), out(1), attr});
    case 2:
      return layer<dnnl::lbr_gru_forward>(op, {engine_, kind, way, in(0), in(4), packed(1),
                                               packed(2), in(3), out(0), out(1), attr});
    default: {
      const auto function =
          op.ints[0] == 3 ? dnnl::algorithm::eltwise_tanh : dnnl::algorithm::eltwise_relu;
      return layer<dnnl::vanilla_rnn_forward>(op, {engine_, kind, function, way, in(0), in(4),
                                                   packed(1), packed(2), in(3), out(0), out(1),
                                                   attr});
    }
  }
}

}  // namespace collage_onednn
