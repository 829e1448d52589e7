/* One plan of a program, and the pointers bound to it. Only cudnn_program.cc includes this. */
#ifndef COLLAGE_CUDNN_STEP_H_
#define COLLAGE_CUDNN_STEP_H_

#include <cudnn.h>

#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cudnn_plan.h"

namespace collage_cudnn {

/* Plans that are built and timed where the fastest one is asked for. */
constexpr int kMeasuredPlans = 12;

/* A finished descriptor that binds pointers to a plan. */
class VariantPack {
 public:
  void bind(const std::vector<int64_t>& uids, const std::vector<Pointer>& pointers,
            Pointer workspace) {
    Descriptor made(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    made.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, pointers)
        .set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, uids)
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
        .finish("binding pointers");
    descriptor_ = std::move(made);
    pointers_ = pointers;
    workspace_ = workspace;
  }

  bool is_bound_to(const std::vector<Pointer>& pointers, Pointer workspace) const {
    return descriptor_ && workspace == workspace_ && pointers == pointers_;
  }

  cudnnBackendDescriptor_t raw() const { return descriptor_->raw(); }

 private:
  std::optional<Descriptor> descriptor_;
  std::vector<Pointer> pointers_;
  Pointer workspace_{nullptr};
};

struct PackBinding : Binding {
  std::vector<VariantPack> packs;
  std::vector<Pointer> pointers;  // scratch, so that a call allocates nothing
};

enum class StepKind : int32_t { kGraph, kSoftmaxForward };

/* One plan of a program, or cuDNN's softmax function: up to version 9.28 no engine of the graph API
 * takes a softmax that is not part of an attention. */
class Step {
 public:
  Step(const collage_cudnn_graph& source, int first, int last, StepKind kind)
      : source_(source), first_(first), last_(last), kind_(kind) {}

  /* The first proposed plan that can be built. */
  void choose(const Device& device, bool spelled_out) {
    try_plans(device, spelled_out, [](int) { return false; });
  }

  /* The fastest of the first few. */
  template <typename Time>
  void choose_fastest(const Device& device, bool spelled_out, Time time) {
    std::optional<Plan> fastest;
    float least = std::numeric_limits<float>::max();
    try_plans(device, spelled_out, [&](int built) {
      const float ms = time();
      if (ms < least) {
        least = ms;
        fastest = std::move(plan_);
      }
      return built < kMeasuredPlans;
    });
    if (!fastest) throw Failure("no plan could be run");
    use(std::move(*fastest));
  }

  void load(const Device& device, const std::vector<unsigned char>& data) {
    uint64_t count = 0;
    if (data.size() < sizeof(count)) throw Failure("a plan is cut short");
    std::memcpy(&count, data.data(), sizeof(count));
    const size_t head = sizeof(count) + count * sizeof(Argument);
    if (count > data.size() || data.size() < head) throw Failure("a plan is cut short");
    std::vector<Argument> arguments(count);
    std::memcpy(arguments.data(), data.data() + sizeof(count), count * sizeof(Argument));
    for (const Argument& argument : arguments)
      if (argument.tensor >= source_.num_tensors) throw Failure("a plan of another graph");
    const std::string text(data.begin() + static_cast<std::ptrdiff_t>(head), data.end());
    use(Plan(text, std::move(arguments), device));
  }

  /* A plain function of cuDNN's: rows of the last dimension. */
  void build_softmax() {
    const collage_cudnn_tensor& x = source_.tensors[source_.operations[first_].inputs[0]];
    const int64_t columns = x.dims[x.rank - 1];
    int64_t rows = 1;
    for (int axis = 0; axis + 1 < x.rank; ++axis) rows *= x.dims[axis];
    check(cudnnCreateTensorDescriptor(&softmax_), "creating a tensor descriptor");
    check(cudnnSetTensor4dDescriptor(softmax_, CUDNN_TENSOR_NCHW, data_type(x.dtype),
                                     static_cast<int>(rows), static_cast<int>(columns), 1, 1),
          "describing softmax");
  }

  /* What `load` takes: the number of arguments, they, and cuDNN's text. */
  std::vector<unsigned char> save() const {
    std::vector<unsigned char> data;
    if (kind_ != StepKind::kGraph) return data;
    const std::string text = plan_->text();
    const std::vector<Argument>& arguments = plan_->arguments();
    const uint64_t count = arguments.size();
    data.resize(sizeof(count) + count * sizeof(Argument));
    std::memcpy(data.data(), &count, sizeof(count));
    std::memcpy(data.data() + sizeof(count), arguments.data(), count * sizeof(Argument));
    data.insert(data.end(), text.begin(), text.end());
    return data;
  }

  int first() const { return first_; }
  int last() const { return last_; }
  StepKind kind() const { return kind_; }
  size_t workspace_bytes() const { return workspace_bytes_; }
  std::string describe() const {
    return kind_ == StepKind::kGraph ? plan_->name() : "cudnnSoftmaxForward";
  }

  /* Makes the pack hold these pointers: one per tensor of the source. */
  void bind(VariantPack& pack, std::vector<Pointer>& scratch, void* const* tensors,
            void* workspace) const {
    scratch.clear();
    for (const Argument& argument : plan_->arguments())
      scratch.push_back({argument.tensor >= 0 ? tensors[argument.tensor]
                                              : const_cast<uint32_t*>(&argument.bits)});
    if (!pack.is_bound_to(scratch, {workspace})) pack.bind(uids_, scratch, {workspace});
  }

  void run(cudnnHandle_t handle, VariantPack& pack, std::vector<Pointer>& scratch,
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
    bind(pack, scratch, tensors, workspace);
    check(cudnnBackendExecute(handle, plan_->descriptor().raw(), pack.raw()), "running");
  }

 private:
  const collage_cudnn_graph& source_;
  int first_;
  int last_;
  StepKind kind_;
  std::optional<Plan> plan_;
  std::vector<int64_t> uids_;
  cudnnTensorDescriptor_t softmax_ = nullptr;
  size_t workspace_bytes_ = 0;

  void use(Plan plan) {
    plan_ = std::move(plan);
    uids_.clear();
    for (const Argument& argument : plan_->arguments()) uids_.push_back(argument.uid);
    workspace_bytes_ = static_cast<size_t>(plan_->workspace_bytes());
  }

  /* What results must not be made by. */
  std::vector<cudnnBackendNumericalNote_t> unwanted() const {
    std::vector<cudnnBackendNumericalNote_t> notes{
        CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION};
    const collage_cudnn_operation& leading = source_.operations[first_];
    const bool multiplies = leading.kind == COLLAGE_CUDNN_CONV ||
                            leading.kind == COLLAGE_CUDNN_CONV_DGRAD ||
                            leading.kind == COLLAGE_CUDNN_MATMUL || is_attention(leading);
    // Engines for elementwise graphs carry the notes too, though they multiply no matrices.
    if (multiplies && source_.tensors[leading.inputs[0]].dtype == COLLAGE_CUDNN_FLOAT32 &&
        source_.allow_tf32 == 0) {
      notes.push_back(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
      notes.push_back(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
    }
    return notes;
  }

  /* Builds proposed plans until `more(number built)` says no. */
  template <typename More>
  void try_plans(const Device& device, bool spelled_out, More more) {
    const OperationGraph graph(source_, first_, last_, spelled_out, device.handle);
    const auto notes = unwanted();
    std::string reasons;
    int built = 0;
    for (const Engine& engine : propose(graph, device)) {
      try {
        if (engine.has_any(notes) || engine.workspace_bytes() > source_.workspace_limit) continue;
        use(Plan(engine, graph.arguments()));
      } catch (const Failure& failure) {
        reasons += std::string("\n") + failure.what();
        continue;
      }
      if (!more(++built)) return;
    }
    if (built == 0) throw Failure("no plan can be built" + reasons);
  }
};

}  // namespace collage_cudnn

#endif  // COLLAGE_CUDNN_STEP_H_
