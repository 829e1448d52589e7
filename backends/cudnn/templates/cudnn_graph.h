/* From a graph's plain data to cuDNN's plan of it. Only cudnn_program.cc includes this. */
#ifndef COLLAGE_CUDNN_GRAPH_H_
#define COLLAGE_CUDNN_GRAPH_H_

#include <cuda_runtime.h>
#include <cudnn_frontend.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cudnn_program.h"

namespace collage_cudnn {
namespace {

// The frontend's checking macros need its names unqualified.
using namespace cudnn_frontend;
using TensorPtr = std::shared_ptr<graph::Tensor_attributes>;

/* Plans that are built and timed where the fastest one is asked for. */
constexpr int kMeasuredPlans = 12;

void check(error_object status, const char* what) {
  if (status.is_bad()) throw Failure(std::string(what) + ": " + status.get_message());
}

void check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 512> details{};
  cudnnGetLastErrorString(details.data(), details.size());
  throw Failure(std::string(what) + ": " + cudnnGetErrorString(status) + " " + details.data());
}

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw Failure(std::string(what) + ": " + cudaGetErrorString(status));
}

DataType_t data_type(int32_t dtype) {
  switch (dtype) {
    case COLLAGE_CUDNN_FLOAT16:
      return DataType_t::HALF;
    case COLLAGE_CUDNN_BFLOAT16:
      return DataType_t::BFLOAT16;
    default:
      return DataType_t::FLOAT;
  }
}

size_t num_bytes(const collage_cudnn_tensor& tensor) {
  size_t bytes = tensor.dtype == COLLAGE_CUDNN_FLOAT32 ? 4 : 2;
  for (int axis = 0; axis < tensor.rank; ++axis) bytes *= static_cast<size_t>(tensor.dims[axis]);
  return bytes;
}


bool is_attention(const collage_cudnn_operation& operation) {
  return operation.kind == COLLAGE_CUDNN_ATTENTION;
}

bool multiplies(const collage_cudnn_operation& operation) {
  return operation.kind == COLLAGE_CUDNN_CONV || operation.kind == COLLAGE_CUDNN_CONV_DGRAD ||
         operation.kind == COLLAGE_CUDNN_MATMUL || is_attention(operation);
}

/* Operations `first` up to `last` of a graph, as one graph of cuDNN's. Tensor n has uid n + 1. */
class PlanGraph : public graph::Graph {
 public:
  PlanGraph(const collage_cudnn_graph& source, int first, int last)
      : source_(source), first_(first), last_(last) {
#if CUDNN_FRONTEND_VERSION >= 13200
#if CUDNN_FRONTEND_VERSION >= 13200
    // Plans live as long as the process, so a captured graph need not keep them alive.
    set_cuda_graph_retention(CudaGraphRetention_t::NONE);
#endif
#endif
  }

  /* Plans the operations; composite: spell attention out, which older engines want. */
  void plan(cudnnHandle_t handle, bool composite) {
    set_intermediate_data_type(DataType_t::FLOAT).set_compute_data_type(DataType_t::FLOAT);
    set_io_data_type(data_type(source_.tensors[source_.operations[first_].inputs[0]].dtype));
    std::vector<TensorPtr> tensors(static_cast<size_t>(source_.num_tensors));
    for (int n = first_; n < last_; ++n) add(source_.operations[n], tensors, composite);
    check(validate(), "validating the graph");
    check(build_operation_graph(handle), "building the operation graph");
    propose();
  }

  /* Builds the first proposed plan that can be built. */
  void choose() { check(build_plans(BuildPlanPolicy_t::HEURISTICS_CHOICE), "building a plan"); }

  /* Builds the first few plans and takes the fastest of them. */
  template <typename Time>
  void choose_fastest(Time time) {
    int64_t best = -1;
    float best_ms = std::numeric_limits<float>::max();
    std::string reasons;
    int built = 0;
    for (int64_t n = 0; n < get_execution_plan_count() && built < kMeasuredPlans; ++n) {
      error_object status = build_plan_at_index(n);
      if (status.is_bad()) {
        reasons += "\n" + status.get_message();
        continue;
      }
      ++built;
      plans.candidate = n;
      if (best < 0) check(prepare_variant_pack_template(), "binding tensors");
      const float ms = time();
      if (ms < best_ms) {
        best_ms = ms;
        best = n;
      }
    }
    if (best < 0) throw Failure("no plan could be built and run" + reasons);
    plans.candidate = best;
  }

  cudnnBackendDescriptor_t plan_descriptor() const {
    return plans.execution_plans[static_cast<size_t>(plans.candidate)]->get_raw_desc();
  }

  std::string engine() const {
    return plans.execution_plans[static_cast<size_t>(plans.candidate)]->getTag();
  }

  /* Scratch memory that the frontend itself manages, before the engine's. */
  int64_t frontend_workspace() const {
    const auto& plan = plans.execution_plans[static_cast<size_t>(plans.candidate)];
    return get_workspace_size() - plan->getWorkspaceSize();
  }

 private:
  const collage_cudnn_graph& source_;
  int first_;
  int last_;

  /* What Graph::create_execution_plans does, less its open-source engines, which need NVRTC. */
  void propose() {
    EngineConfigList configs;
    check(cudnn_frontend::detail::query_cudnn_heuristics_impl(
              operation_graph, configs, {HeurMode_t::A, HeurMode_t::FALLBACK},
              context.get_target_sm_count(), device_properties),
          "asking for engines");
    plans.set_tag(operation_graph->getTag());
    plans.enqueue_engine_configs(configs);
    plans.set_kernel_cache(kernel_cache);
    check(plans.query_properties(), "asking for the engines' properties");
    deselect_workspace_greater_than(source_.workspace_limit);
    std::vector<NumericalNote_t> unwanted{NumericalNote_t::REDUCED_PRECISION_REDUCTION};
    const collage_cudnn_operation& leading = source_.operations[first_];
    const int32_t dtype = source_.tensors[leading.inputs[0]].dtype;
    // Engines for elementwise graphs carry the notes too, though they multiply no matrices.
    if (multiplies(leading) && dtype == COLLAGE_CUDNN_FLOAT32 && source_.allow_tf32 == 0) {
      unwanted.push_back(NumericalNote_t::TENSOR_CORE);
      unwanted.push_back(NumericalNote_t::DOWN_CONVERT_INPUTS);
    }
    deselect_numeric_notes(unwanted);
  }

  static void describe(graph::Tensor_attributes& made, const collage_cudnn_tensor& tensor) {
    made.set_dim({tensor.dims, tensor.dims + tensor.rank});
    made.set_stride({tensor.strides, tensor.strides + tensor.rank});
  }

  TensorPtr input(int32_t index, std::vector<TensorPtr>& tensors) {
    TensorPtr& made = tensors[static_cast<size_t>(index)];
    if (made == nullptr) {
      graph::Tensor_attributes attributes;
      describe(attributes, source_.tensors[index]);
      attributes.set_data_type(data_type(source_.tensors[index].dtype)).set_uid(index + 1);
      made = tensor(attributes);
    }
    return made;
  }

  TensorPtr scalar(double value, int rank) {
    const std::vector<int64_t> ones(static_cast<size_t>(rank), 1);
    graph::Tensor_attributes attributes(static_cast<float>(value));
    attributes.set_dim(ones).set_stride(ones);
    return tensor(attributes);
  }

  /* Whether an operation after those of this graph reads a tensor. */
  bool read_later(int32_t index) const {
    for (int n = last_; n < source_.num_operations; ++n) {
      const collage_cudnn_operation& operation = source_.operations[n];
      const int32_t* end = operation.inputs + operation.num_inputs;
      if (std::find(operation.inputs, end, index) != end) return true;
    }
    return false;
  }

  void add(const collage_cudnn_operation& operation, std::vector<TensorPtr>& tensors,
           bool composite) {
    std::vector<TensorPtr> in;
    for (int n = 0; n < operation.num_inputs; ++n)
      in.push_back(input(operation.inputs[n], tensors));
    const TensorPtr made = apply(operation, in, composite);
    const collage_cudnn_tensor& tensor = source_.tensors[operation.output];
    describe(*made, tensor);
    made->set_uid(operation.output + 1);
    const bool real = tensor.slot >= 0 || read_later(operation.output);
    made->set_output(real).set_data_type(real ? data_type(tensor.dtype) : DataType_t::FLOAT);
    tensors[static_cast<size_t>(operation.output)] = made;
  }

  TensorPtr apply(const collage_cudnn_operation& operation, const std::vector<TensorPtr>& in,
                  bool composite) {
    switch (operation.kind) {
      case COLLAGE_CUDNN_CONV:
        return conv_fprop(in[0], in[1], convolution<graph::Conv_fprop_attributes>(operation));
      case COLLAGE_CUDNN_CONV_DGRAD:
        return conv_dgrad(in[0], in[1], convolution<graph::Conv_dgrad_attributes>(operation));
      case COLLAGE_CUDNN_MATMUL:
        return matmul(in[0], in[1], graph::Matmul_attributes());
      case COLLAGE_CUDNN_ADD:
        return pointwise(in[0], in[1],
                         graph::Pointwise_attributes().set_mode(PointwiseMode_t::ADD));
      case COLLAGE_CUDNN_RELU: {
        auto attributes = graph::Pointwise_attributes().set_mode(PointwiseMode_t::RELU_FWD);
        attributes.set_relu_lower_clip(static_cast<float>(operation.floats[0]));
        if (std::isfinite(operation.floats[1]))
          attributes.set_relu_upper_clip(static_cast<float>(operation.floats[1]));
        if (operation.floats[2] != 0.0)
          attributes.set_relu_lower_clip_slope(static_cast<float>(operation.floats[2]));
        return pointwise(in[0], attributes);
      }
      case COLLAGE_CUDNN_SIGMOID:
        return unary(in[0], PointwiseMode_t::SIGMOID_FWD);
      case COLLAGE_CUDNN_TANH:
        return unary(in[0], PointwiseMode_t::TANH_FWD);
      case COLLAGE_CUDNN_SILU:
        return pointwise(in[0], graph::Pointwise_attributes()
                                    .set_mode(PointwiseMode_t::SWISH_FWD)
                                    .set_swish_beta(1.0f));
      case COLLAGE_CUDNN_GELU:
        return unary(in[0], PointwiseMode_t::GELU_FWD);
      case COLLAGE_CUDNN_GELU_TANH:
        return unary(in[0], PointwiseMode_t::GELU_APPROX_TANH_FWD);
      case COLLAGE_CUDNN_MAX_POOL:
        return pool(operation, in[0], ResampleMode_t::MAXPOOL, PaddingMode_t::NEG_INF_PAD);
      case COLLAGE_CUDNN_AVG_POOL_INCLUDE_PADDING:
        return pool(operation, in[0], ResampleMode_t::AVGPOOL_INCLUDE_PADDING,
                    PaddingMode_t::ZERO_PAD);
      case COLLAGE_CUDNN_AVG_POOL_EXCLUDE_PADDING:
        return pool(operation, in[0], ResampleMode_t::AVGPOOL_EXCLUDE_PADDING,
                    PaddingMode_t::ZERO_PAD);
      case COLLAGE_CUDNN_LAYER_NORM: {
        TensorPtr epsilon = scalar(operation.floats[0], 4);
        return layernorm(in[0], in[1], in[2],
                         graph::Layernorm_attributes()
                             .set_forward_phase(NormFwdPhase_t::INFERENCE)
                             .set_epsilon(epsilon))[0];
      }
      case COLLAGE_CUDNN_RMS_NORM: {
        TensorPtr epsilon = scalar(operation.floats[0], 4);
        return rmsnorm(in[0], in[1],
                       graph::Rmsnorm_attributes()
                           .set_forward_phase(NormFwdPhase_t::INFERENCE)
                           .set_epsilon(epsilon))[0];
      }
      case COLLAGE_CUDNN_ATTENTION:
        return attention(operation, in, composite);
      default:
        throw Failure("unknown operation " + std::to_string(operation.kind));
    }
  }

  /* The n-th attribute that has one integer per spatial dimension. */
  std::vector<int64_t> per_axis(const collage_cudnn_operation& operation, int n) const {
    const int axes = source_.tensors[operation.inputs[0]].rank - 2;
    const int64_t* first = operation.ints + n * axes;
    return {first, first + axes};
  }

  template <typename Attributes>
  Attributes convolution(const collage_cudnn_operation& operation) const {
    Attributes attributes;
    attributes.set_pre_padding(per_axis(operation, 0)).set_post_padding(per_axis(operation, 1));
    attributes.set_stride(per_axis(operation, 2)).set_dilation(per_axis(operation, 3));
    return attributes;
  }

  TensorPtr unary(const TensorPtr& x, PointwiseMode_t mode) {
    return pointwise(x, graph::Pointwise_attributes().set_mode(mode));
  }

  TensorPtr pool(const collage_cudnn_operation& operation, const TensorPtr& x, ResampleMode_t mode,
                 PaddingMode_t padding) {
    return resample(x, graph::Resample_attributes()
                           .set_resampling_mode(mode)
                           .set_padding_mode(padding)
                           .set_generate_index(false)
                           .set_window(per_axis(operation, 0))
                           .set_stride(per_axis(operation, 1))
                           .set_pre_padding(per_axis(operation, 2))
                           .set_post_padding(per_axis(operation, 3)))[0];
  }

  TensorPtr attention(const collage_cudnn_operation& operation, const std::vector<TensorPtr>& in,
                      bool composite) {
    auto attributes = graph::SDPA_attributes().set_generate_stats(false).set_attn_scale(
        static_cast<float>(operation.floats[0]));
    if (operation.ints[0] == 1) attributes.set_causal_mask(true);
    if (operation.ints[0] == 2) attributes.set_causal_mask_bottom_right(true);
    if (in.size() > 3) attributes.set_bias(in[3]);
    if (composite) attributes.set_implementation(AttentionImplementation_t::COMPOSITE);
    return sdpa(in[0], in[1], in[2], attributes)[0];
  }
};

}  // namespace
}  // namespace collage_cudnn

#endif  // COLLAGE_CUDNN_GRAPH_H_
