/* One plan of a program, and the pointers bound to it. Only cudnn_program.cc includes this. */
#ifndef COLLAGE_CUDNN_STEP_H_
#define COLLAGE_CUDNN_STEP_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cudnn_graph.h"

namespace collage_cudnn {
namespace {

/* A finished descriptor that binds pointers to a plan. */
class VariantPack {
 public:
  VariantPack() = default;
  VariantPack(const VariantPack&) = delete;
  VariantPack& operator=(const VariantPack&) = delete;
  ~VariantPack() { reset(); }

  void bind(std::vector<void*> pointers, const std::vector<int64_t>& uids, void* workspace) {
    reset();
    check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &descriptor_),
          "creating a variant pack");
    const auto count = static_cast<int64_t>(uids.size());
    check(cudnnBackendSetAttribute(descriptor_, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                   CUDNN_TYPE_VOID_PTR, count, pointers.data()),
          "binding pointers");
    check(cudnnBackendSetAttribute(descriptor_, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                   CUDNN_TYPE_INT64, count, uids.data()),
          "binding tensors");
    check(cudnnBackendSetAttribute(descriptor_, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                   CUDNN_TYPE_VOID_PTR, 1, &workspace),
          "binding the workspace");
    check(cudnnBackendFinalize(descriptor_), "finishing a variant pack");
    pointers_ = std::move(pointers);
    workspace_ = workspace;
  }

  bool is_bound_to(const std::vector<void*>& pointers, const void* workspace) const {
    return descriptor_ != nullptr && workspace == workspace_ && pointers == pointers_;
  }

  cudnnBackendDescriptor_t get() const { return descriptor_; }

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
  std::vector<void*> pointers_;
  void* workspace_ = nullptr;

  void reset() {
    if (descriptor_ != nullptr) cudnnBackendDestroyDescriptor(descriptor_);
    descriptor_ = nullptr;
  }
};

struct PackBinding : Binding {
  std::vector<VariantPack> packs;
  std::vector<void*> pointers;  // scratch, so that a call allocates nothing
};

enum class StepKind : int32_t { kGraph, kSoftmaxForward };

/* One plan of a program, or cuDNN's softmax function: up to version 9.28 no engine of the graph API
 * takes a softmax that is not part of an attention. */
class Step {
 public:
  Step(const collage_cudnn_graph& source, int first, int last, StepKind kind)
      : source_(source), first_(first), last_(last), kind_(kind) {}

  void build(cudnnHandle_t handle, bool composite) {
    graph_ = std::make_unique<PlanGraph>(source_, first_, last_);
    graph_->plan(handle, composite);
  }

  void choose() {
    graph_->choose();
    finish();
  }

  template <typename Time>
  void choose_fastest(Time time) {
    graph_->choose_fastest([&] {
      finish();
      return time();
    });
    finish();
  }

  void load(cudnnHandle_t handle, const std::vector<uint8_t>& data) {
    graph_ = std::make_unique<PlanGraph>(source_, first_, last_);
    // The first call follows at once, so the frontend need not warm the plan up.
    check(graph_->deserialize(handle, data, true, false), "reading a plan");
    finish();
  }

  /* A plain function of cuDNN's: rows of the last dimension. */
  void build_softmax() {
    const collage_cudnn_tensor& x = source_.tensors[source_.operations[first_].inputs[0]];
    const int64_t columns = x.dims[x.rank - 1];
    int64_t rows = 1;
    for (int axis = 0; axis + 1 < x.rank; ++axis) rows *= x.dims[axis];
    constexpr cudnnDataType_t kTypes[] = {CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16, CUDNN_DATA_FLOAT};
    check(cudnnCreateTensorDescriptor(&softmax_), "creating a tensor descriptor");
    check(cudnnSetTensor4dDescriptor(softmax_, CUDNN_TENSOR_NCHW, kTypes[x.dtype],
                                     static_cast<int>(rows), static_cast<int>(columns), 1, 1),
          "describing softmax");
  }

  std::vector<uint8_t> save() const {
    std::vector<uint8_t> data;
    if (kind_ == StepKind::kGraph) check(graph_->serialize(data, false), "writing a plan");
    return data;
  }

  int first() const { return first_; }
  int last() const { return last_; }
  StepKind kind() const { return kind_; }
  size_t workspace_bytes() const { return workspace_bytes_; }
  std::string describe() const {
    return kind_ == StepKind::kGraph ? graph_->engine() : "cudnnSoftmaxForward";
  }

  /* `tensors`: a pointer per tensor of the source. */
  void run(cudnnHandle_t handle, VariantPack& pack, std::vector<void*>& scratch,
           void* const* tensors, void* workspace) const {
    if (kind_ == StepKind::kSoftmaxForward) {
      const collage_cudnn_operation& operation = source_.operations[first_];
      const float one = 1.0f, zero = 0.0f;
      check(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_INSTANCE, &one,
                                softmax_, tensors[operation.inputs[0]], &zero, softmax_,
                                tensors[operation.output]),
            "running softmax");
      return;
    }
    const auto& layout = graph_->varpack_template;
    if (!plain_) {
      // The frontend moves data of its own before the engine runs.
      scratch.clear();
      for (const int slot : layout.user_slots)
        scratch.push_back(tensors[layout.all_uids[static_cast<size_t>(slot)] - 1]);
      check(graph_->execute(handle, scratch.data(), static_cast<int>(scratch.size()), workspace),
            "running");
      return;
    }
    scratch = layout.template_ptrs;
    for (const int slot : layout.user_slots)
      scratch[static_cast<size_t>(slot)] = tensors[layout.all_uids[static_cast<size_t>(slot)] - 1];
    if (!pack.is_bound_to(scratch, workspace)) pack.bind(scratch, layout.all_uids, workspace);
    check(cudnnBackendExecute(handle, graph_->plan_descriptor(), pack.get()), "running");
  }

 private:
  const collage_cudnn_graph& source_;
  int first_;
  int last_;
  StepKind kind_;
  std::unique_ptr<PlanGraph> graph_;
  cudnnTensorDescriptor_t softmax_ = nullptr;
  bool plain_ = true;
  size_t workspace_bytes_ = 0;

  void finish() {
    int64_t bytes = 0;
    check(graph_->get_workspace_size(bytes), "asking for the workspace");
    workspace_bytes_ = static_cast<size_t>(bytes);
    const auto& layout = graph_->varpack_template;
    plain_ = layout.workspace_slots.empty() && layout.replacement_slots.empty() &&
             graph_->frontend_workspace() == 0;
#if CUDNN_FRONTEND_VERSION >= 13200
    plain_ = plain_ && layout.backend_slots.empty();
#endif
  }
};

}  // namespace
}  // namespace collage_cudnn

#endif  // COLLAGE_CUDNN_STEP_H_
