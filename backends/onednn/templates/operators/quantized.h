// Values rounded to bytes over their own range, for products of 8-bit integers.
#pragma once

#include "recurrent.h"

namespace collage_onednn {

// inputs: x; outputs: its rows in bytes, their step, where zero is, each row's sum of what its bytes
// stand for; floats: [step, where zero is], else over the range of x
inline void Region::quantize(const Op& op) {
  const dims rows = tensor_dims(op.outputs[0]);
  Arguments arguments{{0, plain(op.inputs[0])}};
  for (int tensor : op.outputs) {
    bind(tensor, storage_.fresh(tensor_md(tensor)));
    arguments.emplace_back(0, value_of(tensor));
  }
  const std::vector<float> known = op.floats;
  emit_host(arguments, [rows, known](const std::vector<void*>& data) {
    rows_to_bytes(static_cast<const float*>(data[0]), rows[0], rows[1], known,
                  {static_cast<uint8_t*>(data[1]), static_cast<float*>(data[2]),
                   static_cast<int32_t*>(data[3]), static_cast<float*>(data[4])});
  });
}

// What the bytes of a product stand for, where its processor does not multiply bytes.
inline int Region::floats_of_bytes(const Op& op) {
  const int64_t count = tensor_dims(op.inputs[0])[0] * tensor_dims(op.inputs[0])[1];
  const int floats = storage_.fresh(row_major(tensor_dims(op.inputs[0])));
  emit_host({{0, value_of(op.inputs[0])}, {0, value_of(op.inputs[3])},
             {0, value_of(op.inputs[4])}, {0, floats}},
            [count](const std::vector<void*>& data) {
              bytes_to_floats(static_cast<const uint8_t*>(data[0]), count,
                              *static_cast<const float*>(data[1]),
                              *static_cast<const int32_t*>(data[2]), static_cast<float*>(data[3]));
            });
  return floats;
}

inline int Region::floats_of_weights(const Op& op) {
  const dims& d = tensor_dims(op.inputs[1]);
  const int floats = storage_.owned(row_major(d));
  auto* result = reinterpret_cast<float*>(storage_.group(floats).data);
  auto data = [&](int tensor) { return storage_.group(value_of(tensor)).data; };
  const auto* weights = reinterpret_cast<const int8_t*>(data(op.inputs[1]));
  const auto* scales = reinterpret_cast<const float*>(data(op.inputs[2]));
  for (int64_t i = 0; i < d[0] * d[1]; ++i) result[i] = weights[i] * scales[i % d[1]];
  return floats;
}

}  // namespace collage_onednn
