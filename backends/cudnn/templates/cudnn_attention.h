/* Attention in cuDNN's graph API: one operation, or its products and softmax spelled out. */
#ifndef COLLAGE_CUDNN_ATTENTION_H_
#define COLLAGE_CUDNN_ATTENTION_H_

#include <algorithm>
#include <limits>

#include "cudnn_operations.h"

namespace collage_cudnn {

/* Whether headers and library are of this version or later, for example 92100. */
inline bool is_at_least(size_t version) {
  return std::min<size_t>(CUDNN_VERSION, cudnnGetVersion()) >= version;
}

/* Numbers of what headers before cuDNN 9.21 have no names for. */
namespace later {
inline cudnnBackendAttributeName_t attribute(int number) {
  return static_cast<cudnnBackendAttributeName_t>(number);
}
inline cudnnBackendDescriptorType_t descriptor(int number) {
  return static_cast<cudnnBackendDescriptorType_t>(number);
}
constexpr int kAttention = 41;  // 9.13: CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR
constexpr int kQuery = 2800, kKey = 2801, kValue = 2802, kOutput = 2803, kScale = 2805;
constexpr int kSubgraph = 2811, kSubgraphInput = 2812, kSubgraphOutput = 2813;
constexpr int kBandMask = 44;  // 9.20: CUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR
constexpr int kMaskInput = 3000, kMaskKeys = 3001, kMaskQueries = 3002, kMaskFill = 3005;
constexpr int kMaskOutput = 3006, kMaskComparison = 3007;
constexpr int kSoftmax = 45;  // 9.20: CUDNN_BACKEND_OPERATION_SOFTMAX_DESCRIPTOR
constexpr int kSoftmaxInput = 3100, kSoftmaxOutput = 3101;
}  // namespace later

enum class Mask : int64_t { kNone = 0, kCausal = 1, kCausalToBottomRight = 2 };

/* Tensors are (batch, heads, length, width). */
struct Attention {
  const Tensor& query;
  const Tensor& key;
  const Tensor& value;
  const Tensor* bias;
  const Tensor& output;
  float scale;
  Mask mask;
  cudnnDataType_t type;

  bool changes_scores() const { return bias != nullptr || mask != Mask::kNone; }
  Extents scores() const { return {query.dims[0], query.dims[1], query.dims[2], value.dims[2]}; }
};

/* Scores with minus infinity where a query must not look, by index arithmetic. */
inline const Tensor& mask_by_indices(Tensors& tensors, Operations& operations,
                                     const Tensor& scores, bool bottom_right,
                                     const Tensor& outside) {
  const Tensor* row = &tensors.inner(scores.dims, CUDNN_DATA_INT32);
  operations.pointwise({CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 0, 0, 0, 2}, {&scores}, *row);
  const Tensor& column = tensors.inner(scores.dims, CUDNN_DATA_INT32);
  operations.pointwise({CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 0, 0, 0, 3}, {&scores},
                       column);
  const auto shift = [&](cudnnPointwiseMode_t mode, int64_t by) {
    const Tensor& moved = tensors.inner(scores.dims, CUDNN_DATA_INT32);
    operations.pointwise({mode, CUDNN_DATA_INT32},
                         {row, &tensors.number(static_cast<int32_t>(by))}, moved);
    row = &moved;
  };
  if (bottom_right) {
    shift(CUDNN_POINTWISE_ADD, scores.dims[3]);
    shift(CUDNN_POINTWISE_SUB, scores.dims[2]);
  }
  const Tensor& visible = tensors.inner(scores.dims, CUDNN_DATA_BOOLEAN);
  operations.pointwise({CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN}, {row, &column}, visible);
  const Tensor& masked = tensors.inner(scores.dims);
  operations.pointwise({CUDNN_POINTWISE_BINARY_SELECT}, {&scores, &outside, &visible}, masked);
  return masked;
}

/* The same as one operation, which cuDNN 9.21 has. */
inline const Tensor& mask_by_band(Tensors& tensors, Operations& operations, const Tensor& scores,
                                  bool bottom_right, const Tensor& outside) {
  using later::attribute;
  Descriptor made(later::descriptor(later::kBandMask));
  made.set(attribute(later::kMaskInput), scores.descriptor);
  made.set(attribute(later::kMaskFill), outside.descriptor);
  if (bottom_right) {
    const auto extent = [&](int axis) -> const Tensor& {
      return tensors.number(static_cast<int32_t>(scores.dims[static_cast<size_t>(axis)]));
    };
    made.set(attribute(later::kMaskQueries), extent(2).descriptor);
    made.set(attribute(later::kMaskKeys), extent(3).descriptor);
  }
  const Tensor& masked = tensors.inner(scores.dims);
  made.set(attribute(later::kMaskOutput), masked.descriptor)
      .set(attribute(later::kMaskComparison), CUDNN_POINTWISE_CMP_GE)
      .finish("masking attention");
  operations.add(std::move(made));
  return masked;
}

/* Scores with bias and mask. */
inline const Tensor& change_scores(Tensors& tensors, Operations& operations,
                                   const Attention& what, const Tensor& scores) {
  const Tensor* changed = &scores;
  if (what.bias != nullptr) {
    const Tensor& sum = tensors.inner(scores.dims);
    operations.pointwise({CUDNN_POINTWISE_ADD}, {changed, what.bias}, sum);
    changed = &sum;
  }
  if (what.mask == Mask::kNone) return *changed;
  const Tensor& outside = tensors.number(-std::numeric_limits<float>::infinity());
  const bool bottom_right = what.mask == Mask::kCausalToBottomRight;
  const auto& mask = is_at_least(92100) ? mask_by_band : mask_by_indices;
  return mask(tensors, operations, *changed, bottom_right, outside);
}

inline void softmax(Tensors& tensors, Operations& operations, const Tensor& x,
                    const Tensor& out) {
  if (is_at_least(92100)) {
    Descriptor made(later::descriptor(later::kSoftmax));
    made.set(later::attribute(later::kSoftmaxInput), x.descriptor)
        .set(later::attribute(later::kSoftmaxOutput), out.descriptor)
        .finish("softmax");
    operations.add(std::move(made));
    return;
  }
  Extents per_row = x.dims;
  per_row.back() = 1;
  const Tensor& largest = tensors.inner(per_row);
  operations.reduce(CUDNN_REDUCE_TENSOR_MAX, x, largest);
  const Tensor& below = tensors.inner(x.dims);
  operations.pointwise({CUDNN_POINTWISE_SUB}, {&x, &largest}, below);
  const Tensor& powers = tensors.inner(x.dims);
  operations.pointwise({CUDNN_POINTWISE_EXP}, {&below}, powers);
  const Tensor& sum = tensors.inner(per_row);
  operations.reduce(CUDNN_REDUCE_TENSOR_ADD, powers, sum);
  // Nobody reads the logarithm of the sum, but engines know attention by it.
  const Tensor& logarithm = tensors.inner(per_row);
  operations.pointwise({CUDNN_POINTWISE_LOG}, {&sum}, logarithm);
  operations.pointwise({CUDNN_POINTWISE_ADD}, {&largest, &logarithm}, tensors.inner(per_row));
  operations.pointwise({CUDNN_POINTWISE_DIV}, {&powers, &sum}, out);
}

/* Attention as one operation, with what changes its scores as a graph inside. */
inline void attention(Tensors& tensors, Operations& operations, const Attention& what) {
  using later::attribute;
  if (!is_at_least(what.changes_scores() ? 92100 : 91301))
    throw Failure("attention is no single operation in this version of cuDNN");
  Descriptor made(later::descriptor(later::kAttention));
  made.set(attribute(later::kQuery), what.query.descriptor)
      .set(attribute(later::kKey), what.key.descriptor)
      .set(attribute(later::kValue), what.value.descriptor)
      .set(attribute(later::kOutput), what.output.descriptor)
      .set(attribute(later::kScale), tensors.number(what.scale, 1).descriptor);
  if (what.changes_scores()) {
    Operations inside;
    const Tensor& scores = tensors.inner(what.scores());
    const Tensor& changed = change_scores(tensors, inside, what, scores);
    made.set(attribute(later::kSubgraph), inside.graph(nullptr))
        .set(attribute(later::kSubgraphInput), scores.uid)
        .set(attribute(later::kSubgraphOutput), changed.uid);
  }
  made.finish("attention");
  operations.add(std::move(made));
}

/* The same spelled out; the key must be described transposed: (batch, heads, width, length). */
inline void spell_out_attention(Tensors& tensors, Operations& operations, const Attention& what) {
  const Extents dims = what.scores();
  const Tensor& products = tensors.inner(dims);
  operations.matmul(what.query, what.key, products);
  const Tensor& scaled = tensors.inner(dims);
  operations.pointwise({CUDNN_POINTWISE_MUL}, {&products, &tensors.number(what.scale)}, scaled);
  const Tensor& scores = change_scores(tensors, operations, what, scaled);
  const Tensor& weights = tensors.inner(dims, what.type);  // a product's operands are of one type
  softmax(tensors, operations, scores, weights);
  operations.matmul(weights, what.value, what.output);
}

}  // namespace collage_cudnn

#endif  // COLLAGE_CUDNN_ATTENTION_H_
