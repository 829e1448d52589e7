// The plan of a region: operators over logical tensors, decoded from the words that plan.py wrote.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace collage_onednn {

// Same order as the enums of graph.py and plan.py.
enum class OpKind : int64_t {
  conv, matmul, pool, softmax, layer_norm, lrn, binary, eltwise, reduction,
  reshape, permute, slice, concat, shuffle, pad, deconv, resample,
  recurrent, quantize, bytes_matmul, bytes_conv, dequantize, select,
  scale_weights, interleave,
};
enum class Source : int64_t { computed, input, constant };
enum class Layout : int64_t { automatic, blocked, nhwc, plain };

enum class Precision : int64_t { float32, bfloat16 };

struct PostOp {
  bool is_binary;
  int64_t algorithm;
  float alpha, beta;
  int tensor;  // other operand of a binary one
};

struct Op {
  OpKind kind;
  std::vector<int> inputs, outputs;
  std::vector<int64_t> ints;
  std::vector<float> floats;
  std::vector<PostOp> post_ops;
};

struct PlanTensor {
  Source source;
  int index;  // which argument or constant
  int64_t type;
  std::vector<int64_t> dims;
};

struct Plan {
  Layout layout;
  Precision precision;
  bool winograd;
  std::vector<PlanTensor> tensors;
  std::vector<int> outputs;
  int num_inputs;
  std::vector<Op> ops;
};

class Words {
 public:
  Words(const int64_t* words, int64_t count) : next_(words), end_(words + count) {}
  int64_t integer() {
    if (next_ == end_) throw std::runtime_error("the plan ends early");
    return *next_++;
  }
  float real() {
    auto bits = static_cast<uint32_t>(integer());
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  template <class T = int64_t>
  std::vector<T> list() {
    std::vector<T> values(static_cast<size_t>(integer()));
    for (auto& v : values) v = static_cast<T>(integer());
    return values;
  }

 private:
  const int64_t *next_, *end_;
};

constexpr int64_t kPlanVersion = 3;

inline Plan decode_plan(const int64_t* data, int64_t count) {
  Words words(data, count);
  if (words.integer() != kPlanVersion) throw std::runtime_error("plan of another version");
  Plan plan;
  plan.layout = static_cast<Layout>(words.integer());
  plan.precision = static_cast<Precision>(words.integer());
  plan.winograd = words.integer() != 0;
  plan.num_inputs = 0;
  plan.tensors.resize(static_cast<size_t>(words.integer()));
  for (auto& t : plan.tensors) {
    t.source = static_cast<Source>(words.integer());
    t.index = static_cast<int>(words.integer());
    t.type = words.integer();
    t.dims = words.list();
  }
  plan.num_inputs = static_cast<int>(words.integer());
  plan.outputs = words.list<int>();
  plan.ops.resize(static_cast<size_t>(words.integer()));
  for (auto& op : plan.ops) {
    op.kind = static_cast<OpKind>(words.integer());
    op.inputs = words.list<int>();
    op.outputs = words.list<int>();
    op.ints = words.list();
    op.floats.resize(static_cast<size_t>(words.integer()));
    for (auto& f : op.floats) f = words.real();
    op.post_ops.resize(static_cast<size_t>(words.integer()));
    for (auto& p : op.post_ops) {
      p.is_binary = words.integer() != 0;
      p.algorithm = words.integer();
      p.alpha = words.real();
      p.beta = words.real();
      p.tensor = static_cast<int>(words.integer());
    }
  }
  return plan;
}

}  // namespace collage_onednn
