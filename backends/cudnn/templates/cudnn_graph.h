/* From a graph's plain data to cuDNN's operation graph. */
#ifndef COLLAGE_CUDNN_GRAPH_H_
#define COLLAGE_CUDNN_GRAPH_H_

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "cudnn_attention.h"

namespace collage_cudnn {

inline cudnnDataType_t data_type(int32_t dtype) {
  constexpr cudnnDataType_t kTypes[] = {CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16, CUDNN_DATA_FLOAT};
  return kTypes[dtype];
}

inline bool is_attention(const collage_cudnn_operation& operation) {
  return operation.kind == COLLAGE_CUDNN_ATTENTION;
}

/* Operations `first` up to `last` of a graph, as one graph of cuDNN's. */
class OperationGraph {
 public:
  /* spelled_out: attention as its products and softmax, which older engines want. */
  OperationGraph(const collage_cudnn_graph& source, int first, int last, bool spelled_out,
                 cudnnHandle_t handle)
      : source_(source), last_(last), spelled_out_(spelled_out), tensors_(source.num_tensors),
        made_(static_cast<size_t>(source.num_tensors)) {
    for (int n = first; n < last; ++n) add(source.operations[n]);
    graph_.emplace(operations_.graph(handle));
  }

  const Descriptor& descriptor() const { return *graph_; }
  const std::vector<Argument>& arguments() const { return tensors_.arguments(); }

 private:
  const collage_cudnn_graph& source_;
  int last_;
  bool spelled_out_;
  Tensors tensors_;
  Operations operations_;
  std::vector<const Tensor*> made_;  // by the source's index
  std::optional<Descriptor> graph_;

  /* Whether an operation after those of this graph reads a tensor. */
  bool read_later(int32_t index) const {
    for (int n = last_; n < source_.num_operations; ++n) {
      const collage_cudnn_operation& operation = source_.operations[n];
      const int32_t* end = operation.inputs + operation.num_inputs;
      if (std::find(operation.inputs, end, index) != end) return true;
    }
    return false;
  }

  const Tensor& tensor(int32_t index, bool is_virtual, bool transposed) {
    const collage_cudnn_tensor& given = source_.tensors[index];
    Extents dims(given.dims, given.dims + given.rank);
    Extents strides(given.strides, given.strides + given.rank);
    if (transposed) {
      std::iter_swap(dims.end() - 1, dims.end() - 2);
      std::iter_swap(strides.end() - 1, strides.end() - 2);
    }
    const cudnnDataType_t type = is_virtual ? CUDNN_DATA_FLOAT : data_type(given.dtype);
    const Tensor*& made = made_[static_cast<size_t>(index)];
    if (made == nullptr)
      made = &tensors_.source(index, std::move(dims), std::move(strides), type, is_virtual);
    return *made;
  }

  void add(const collage_cudnn_operation& operation) {
    std::vector<const Tensor*> in;
    for (int n = 0; n < operation.num_inputs; ++n) {
      const bool transposed = is_attention(operation) && spelled_out_ && n == 1;
      in.push_back(&tensor(operation.inputs[n], false, transposed));
    }
    const bool real =
        source_.tensors[operation.output].slot >= 0 || read_later(operation.output);
    apply(operation, in, tensor(operation.output, !real, false));
  }

  void apply(const collage_cudnn_operation& operation, const std::vector<const Tensor*>& in,
             const Tensor& out) {
    switch (operation.kind) {
      case COLLAGE_CUDNN_CONV:
        return convolve(operation, *in[0], *in[1], out);
      case COLLAGE_CUDNN_CONV_DGRAD:
        return convolve_transposed(operation, *in[0], *in[1], out);
      case COLLAGE_CUDNN_MATMUL:
        return operations_.matmul(*in[0], *in[1], out);
      case COLLAGE_CUDNN_ADD:
        return operations_.pointwise({CUDNN_POINTWISE_ADD}, {in[0], in[1]}, out);
      case COLLAGE_CUDNN_RELU:
        return relu(operation, *in[0], out);
      case COLLAGE_CUDNN_SIGMOID:
        return operations_.pointwise({CUDNN_POINTWISE_SIGMOID_FWD}, {in[0]}, out);
      case COLLAGE_CUDNN_TANH:
        return operations_.pointwise({CUDNN_POINTWISE_TANH_FWD}, {in[0]}, out);
      case COLLAGE_CUDNN_SILU:
        return operations_.pointwise({CUDNN_POINTWISE_SWISH_FWD}, {in[0]}, out);
      case COLLAGE_CUDNN_GELU:
        return operations_.pointwise({CUDNN_POINTWISE_GELU_FWD}, {in[0]}, out);
      case COLLAGE_CUDNN_GELU_TANH:
        return operations_.pointwise({CUDNN_POINTWISE_GELU_APPROX_TANH_FWD}, {in[0]}, out);
      case COLLAGE_CUDNN_MAX_POOL:
        return pool(operation, *in[0], out, CUDNN_RESAMPLE_MAXPOOL, CUDNN_NEG_INF_PAD);
      case COLLAGE_CUDNN_AVG_POOL_INCLUDE_PADDING:
        return pool(operation, *in[0], out, CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING,
                    CUDNN_ZERO_PAD);
      case COLLAGE_CUDNN_AVG_POOL_EXCLUDE_PADDING:
        return pool(operation, *in[0], out, CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING,
                    CUDNN_ZERO_PAD);
      case COLLAGE_CUDNN_LAYER_NORM:
        return norm(CUDNN_LAYER_NORM, operation, in, out);
      case COLLAGE_CUDNN_RMS_NORM:
        return norm(CUDNN_RMS_NORM, operation, in, out);
      case COLLAGE_CUDNN_ATTENTION:
        return attend(operation, in, out);
      default:
        throw Failure("unknown operation " + std::to_string(operation.kind));
    }
  }

  /* The n-th attribute that has one integer per spatial dimension. */
  Extents per_axis(const collage_cudnn_operation& operation, int n) const {
    const int axes = source_.tensors[operation.inputs[0]].rank - 2;
    const int64_t* first = operation.ints + n * axes;
    return {first, first + axes};
  }

  Descriptor convolution(const collage_cudnn_operation& operation) const {
    const Extents before = per_axis(operation, 0);
    Descriptor made(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    made.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
        .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
        .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, static_cast<int64_t>(before.size()))
        .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, before)
        .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, per_axis(operation, 1))
        .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, per_axis(operation, 2))
        .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, per_axis(operation, 3))
        .finish("describing a convolution");
    return made;
  }

  void convolve(const collage_cudnn_operation& operation, const Tensor& x, const Tensor& w,
                const Tensor& out) {
    const Descriptor how = convolution(operation);
    Descriptor made(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    made.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x.descriptor)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w.descriptor)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, out.descriptor)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, how)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0f)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0f)
        .finish("a convolution");
    operations_.add(std::move(made));
  }

  void convolve_transposed(const collage_cudnn_operation& operation, const Tensor& y,
                           const Tensor& w, const Tensor& out) {
    const Descriptor how = convolution(operation);
    Descriptor made(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
    made.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, y.descriptor)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, w.descriptor)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, out.descriptor)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, how)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1.0f)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 0.0f)
        .finish("a transposed convolution");
    operations_.add(std::move(made));
  }

  void relu(const collage_cudnn_operation& operation, const Tensor& x, const Tensor& out) {
    // cuDNN has these as doubles that float32 arithmetic uses.
    const auto rounded = [](double value) {
      return static_cast<double>(static_cast<float>(value));
    };
    Pointwise what{CUDNN_POINTWISE_RELU_FWD};
    what.lower = rounded(operation.floats[0]);
    what.upper = std::isfinite(operation.floats[1]) ? rounded(operation.floats[1])
                                                    : std::numeric_limits<float>::max();
    what.slope = rounded(operation.floats[2]);
    operations_.pointwise(what, {&x}, out);
  }

  void pool(const collage_cudnn_operation& operation, const Tensor& x, const Tensor& out,
            cudnnResampleMode_t mode, cudnnPaddingMode_t padding) {
    const auto fractions = [&](int n) {
      std::vector<cudnnFraction_t> made;
      for (const int64_t value : per_axis(operation, n)) made.push_back({value, 1});
      return made;
    };
    Descriptor how(CUDNN_BACKEND_RESAMPLE_DESCRIPTOR);
    how.set(CUDNN_ATTR_RESAMPLE_MODE, mode)
        .set(CUDNN_ATTR_RESAMPLE_COMP_TYPE, CUDNN_DATA_FLOAT)
        .set(CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION, CUDNN_PROPAGATE_NAN)
        .set(CUDNN_ATTR_RESAMPLE_PADDING_MODE, padding)
        .set(CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, static_cast<int64_t>(fractions(0).size()))
        .set(CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, fractions(0))
        .set(CUDNN_ATTR_RESAMPLE_STRIDES, fractions(1))
        .set(CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, fractions(2))
        .set(CUDNN_ATTR_RESAMPLE_POST_PADDINGS, fractions(3))
        .finish("describing a pool");
    Descriptor made(CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR);
    made.set(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, x.descriptor)
        .set(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, out.descriptor)
        .set(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_ALPHA, 1.0)
        .set(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_BETA, 0.0)
        .set(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, how)
        .finish("a pool");
    operations_.add(std::move(made));
  }

  void norm(cudnnBackendNormMode_t mode, const collage_cudnn_operation& operation,
            const std::vector<const Tensor*>& in, const Tensor& out) {
    const Tensor& epsilon = tensors_.number(static_cast<float>(operation.floats[0]));
    Descriptor made(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
    made.set(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, mode)
        .set(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_NORM_FWD_INFERENCE)
        .set(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, in[0]->descriptor)
        .set(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, in[1]->descriptor);
    if (in.size() > 2) made.set(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, in[2]->descriptor);
    made.set(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, epsilon.descriptor)
        .set(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, out.descriptor)
        .finish("a norm");
    operations_.add(std::move(made));
  }

  void attend(const collage_cudnn_operation& operation, const std::vector<const Tensor*>& in,
              const Tensor& out) {
    const Attention what{*in[0],
                         *in[1],
                         *in[2],
                         in.size() > 3 ? in[3] : nullptr,
                         out,
                         static_cast<float>(operation.floats[0]),
                         static_cast<Mask>(operation.ints[0]),
                         data_type(source_.tensors[operation.inputs[0]].dtype)};
    if (spelled_out_)
      spell_out_attention(tensors_, operations_, what);
    else
      attention(tensors_, operations_, what);
  }
};

}  // namespace collage_cudnn

#endif  // COLLAGE_CUDNN_GRAPH_H_
