/* Tensors and operations of cuDNN's graph API. */
#ifndef COLLAGE_CUDNN_OPERATIONS_H_
#define COLLAGE_CUDNN_OPERATIONS_H_

#include <cstring>
#include <deque>
#include <initializer_list>

#include "cudnn_descriptor.h"

namespace collage_cudnn {

using Extents = std::vector<int64_t>;

/* What a plan is given when it runs: a tensor of the source graph, or (tensor < 0) a number of four
 * bytes that cuDNN reads from the host's memory. Part of a saved plan. */
struct Argument {
  int64_t uid;
  int32_t tensor;
  uint32_t bits;
};

struct Tensor {
  Descriptor descriptor;
  int64_t uid;
  Extents dims;
  Extents strides;
};

/* The strides of a tensor whose last dimension is contiguous. */
inline Extents row_major(const Extents& dims) {
  Extents strides(dims.size(), 1);
  for (size_t axis = dims.size() - 1; axis > 0; --axis)
    strides[axis - 1] = strides[axis] * dims[axis];
  return strides;
}

/* The tensors of a graph. Tensor n of the source has uid n + 1, those made besides follow. */
class Tensors {
 public:
  explicit Tensors(int32_t num_source_tensors) : next_uid_(num_source_tensors + 1) {}

  /* Tensor n of the source; its memory is bound when the plan runs, unless it is virtual. */
  const Tensor& source(int32_t n, Extents dims, Extents strides, cudnnDataType_t type,
                       bool is_virtual) {
    if (!is_virtual) arguments_.push_back({n + 1, n, 0});
    return add(n + 1, std::move(dims), std::move(strides), type, is_virtual, false);
  }
  const Tensor& inner(const Extents& dims, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return add(next_uid_++, dims, row_major(dims), type, true, false);
  }
  const Tensor& number(float value, size_t rank = 4) {
    return number(&value, CUDNN_DATA_FLOAT, rank);
  }
  const Tensor& number(int32_t value) { return number(&value, CUDNN_DATA_INT32, 4); }

  const std::vector<Argument>& arguments() const { return arguments_; }

 private:
  int64_t next_uid_;
  std::deque<Tensor> all_;
  std::vector<Argument> arguments_;

  const Tensor& number(const void* value, cudnnDataType_t type, size_t rank) {
    Argument argument{next_uid_, -1, 0};
    std::memcpy(&argument.bits, value, sizeof(argument.bits));
    arguments_.push_back(argument);
    return add(next_uid_++, Extents(rank, 1), Extents(rank, 1), type, false, true);
  }

  const Tensor& add(int64_t uid, Extents dims, Extents strides, cudnnDataType_t type,
                    bool is_virtual, bool by_value) {
    constexpr int64_t kAlignment = 16;
    Descriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims)
        .set(CUDNN_ATTR_TENSOR_STRIDES, strides)
        .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, uid)
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment)
        .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_virtual)
        .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, by_value)
        .finish("describing a tensor");
    all_.push_back({std::move(made), uid, std::move(dims), std::move(strides)});
    return all_.back();
  }
};

/* What a pointwise operation has besides its mode. */
struct Pointwise {
  cudnnPointwiseMode_t mode;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  double lower = 0, upper = 0, slope = 0;  // of a ReLU
  int64_t axis = -1;                       // of an index
};

/* Operations in order, each after those that make its inputs. */
class Operations {
 public:
  void add(Descriptor operation) { all_.push_back(std::move(operation)); }

  void pointwise(const Pointwise& what, std::initializer_list<const Tensor*> in,
                 const Tensor& out) {
    Descriptor made(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    made.set(CUDNN_ATTR_POINTWISE_MODE, what.mode);
    made.set(CUDNN_ATTR_POINTWISE_MATH_PREC, what.compute);
    if (what.mode == CUDNN_POINTWISE_RELU_FWD)
      made.set(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_PROPAGATE_NAN)
          .set(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, what.lower)
          .set(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, what.upper)
          .set(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, what.slope);
    if (what.mode == CUDNN_POINTWISE_SWISH_FWD) made.set(CUDNN_ATTR_POINTWISE_SWISH_BETA, 1.0);
    if (what.mode == CUDNN_POINTWISE_GEN_INDEX) made.set(CUDNN_ATTR_POINTWISE_AXIS, what.axis);
    made.finish("describing a pointwise operation");
    constexpr cudnnBackendAttributeName_t kInputs[] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                                       CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                                       CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
    Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, made);
    int n = 0;
    for (const Tensor* tensor : in) operation.set(kInputs[n++], tensor->descriptor);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out.descriptor)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1.0f)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 1.0f)
        .finish("a pointwise operation");
    add(std::move(operation));
  }

  void matmul(const Tensor& a, const Tensor& b, const Tensor& out) {
    Descriptor made(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    made.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT).finish("describing a product");
    Descriptor operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.descriptor)
        .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.descriptor)
        .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, out.descriptor)
        .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, made)
        .finish("a product");
    add(std::move(operation));
  }

  void reduce(cudnnReduceTensorOp_t what, const Tensor& x, const Tensor& out) {
    Descriptor made(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    made.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
        .set(CUDNN_ATTR_REDUCTION_OPERATOR, what)
        .finish("describing a reduction");
    Descriptor operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, made)
        .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.descriptor)
        .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, out.descriptor)
        .finish("a reduction");
    add(std::move(operation));
  }

  /* The operations as a graph; the handle may be null. */
  Descriptor graph(cudnnHandle_t handle) const {
    std::vector<cudnnBackendDescriptor_t> raw;
    for (const Descriptor& operation : all_) raw.push_back(operation.raw());
    Descriptor made(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    made.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, raw);
    if (handle != nullptr) made.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
    made.finish("building the operation graph");
    return made;
  }

 private:
  std::vector<Descriptor> all_;
};

}  // namespace collage_cudnn

#endif  // COLLAGE_CUDNN_OPERATIONS_H_
