#include "cudnn_program.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "cudnn_step.h"

namespace collage_cudnn {
namespace {

constexpr int kTimedRuns = 10;
constexpr int kTimedRounds = 5;
constexpr size_t kAlignment = 256;

void check_cuda(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw Failure(std::string(what) + ": " + cudaGetErrorString(status));
}

size_t num_bytes(const collage_cudnn_tensor& tensor) {
  size_t bytes = tensor.dtype == COLLAGE_CUDNN_FLOAT32 ? 4 : 2;
  for (int axis = 0; axis < tensor.rank; ++axis) bytes *= static_cast<size_t>(tensor.dims[axis]);
  return bytes;
}

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/* Another one where plans are written otherwise. */
constexpr char kMagic[] = "CLGCDNN2";

/* What a plan depends on besides its graph. */
struct PlanHeader {
  char magic[8];
  int64_t cudnn_version;
  char device[128];
  int32_t compute_capability;
  int32_t multiprocessors;
  int32_t num_steps;
  int32_t reserved;
};

struct StepHeader {
  int32_t first;
  int32_t last;
  StepKind kind;
  int32_t reserved;
  uint64_t bytes;
};

PlanHeader current_header() {
  PlanHeader header{};
  std::memcpy(header.magic, "CLGCDNN2", sizeof(header.magic));
  header.cudnn_version = static_cast<int64_t>(cudnnGetVersion());
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  std::strncpy(header.device, properties.name, sizeof(header.device) - 1);
  header.compute_capability = properties.major * 10 + properties.minor;
  header.multiprocessors = properties.multiProcessorCount;
  return header;
}

class GraphProgram : public Program {
 public:
  explicit GraphProgram(const collage_cudnn_graph& source)
      : source_(source), offsets_(static_cast<size_t>(source.num_tensors), kNone),
        tensors_(static_cast<size_t>(source.num_tensors)) {}

  Step& add(int first, int last, StepKind kind) {
    steps_.push_back(std::make_unique<Step>(source_, first, last, kind));
    return *steps_.back();
  }

  /* Lays the workspace out, once every step is there. */
  void finish() {
    inner_bytes_ = 0;
    std::fill(offsets_.begin(), offsets_.end(), kNone);
    for (const auto& step : steps_) {
      const int32_t output = source_.operations[step->last() - 1].output;
      if (source_.tensors[output].slot >= 0) continue;
      offsets_[static_cast<size_t>(output)] = inner_bytes_;
      inner_bytes_ += aligned(num_bytes(source_.tensors[output]));
    }
    engine_bytes_ = 0;
    for (const auto& step : steps_)
      engine_bytes_ = std::max(engine_bytes_, step->workspace_bytes());
  }

  void run(cudnnHandle_t handle, std::unique_ptr<Binding>& binding, void* const* slots,
           void* workspace) override {
    if (binding == nullptr) binding = std::make_unique<PackBinding>();
    auto& packs = static_cast<PackBinding&>(*binding);
    if (packs.packs.size() != steps_.size()) packs.packs = std::vector<VariantPack>(steps_.size());
    auto* scratch = static_cast<unsigned char*>(workspace);
    for (size_t index = 0; index < tensors_.size(); ++index) {
      const int32_t slot = source_.tensors[index].slot;
      tensors_[index] = slot >= 0                 ? slots[slot]
                        : offsets_[index] == kNone ? nullptr
                                                   : scratch + offsets_[index];
    }
    void* engine_workspace = engine_bytes_ == 0 ? nullptr : scratch + inner_bytes_;
    for (size_t n = 0; n < steps_.size(); ++n)
      steps_[n]->run(handle, packs.packs[n], packs.pointers, tensors_.data(), engine_workspace);
  }

  size_t workspace_bytes() const override { return inner_bytes_ + engine_bytes_; }

  std::string describe() const override {
    std::string text;
    for (const auto& step : steps_) text += (text.empty() ? "" : " + ") + step->describe();
    return text;
  }

  std::vector<unsigned char> save() const override {
    PlanHeader header = current_header();
    header.num_steps = static_cast<int32_t>(steps_.size());
    std::vector<unsigned char> out;
    const auto append = [&out](const void* data, size_t bytes) {
      const auto* begin = static_cast<const unsigned char*>(data);
      out.insert(out.end(), begin, begin + bytes);
    };
    append(&header, sizeof(header));
    for (const auto& step : steps_) {
      const std::vector<unsigned char> data = step->save();
      const StepHeader head{step->first(), step->last(), step->kind(), 0, data.size()};
      append(&head, sizeof(head));
      append(data.data(), data.size());
    }
    return out;
  }

 private:
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();
  const collage_cudnn_graph& source_;
  std::vector<std::unique_ptr<Step>> steps_;
  std::vector<size_t> offsets_;  // of inner tensors in the workspace
  std::vector<void*> tensors_;
  size_t inner_bytes_ = 0;
  size_t engine_bytes_ = 0;
};

/* Device memory for every tensor and the workspace, to time plans on. */
class TimingBuffers {
 public:
  explicit TimingBuffers(const collage_cudnn_graph& source) : slots_(COLLAGE_CUDNN_MAX_SLOTS) {
    for (int n = 0; n < source.num_tensors; ++n) {
      const collage_cudnn_tensor& tensor = source.tensors[n];
      if (tensor.slot >= 0) slots_[static_cast<size_t>(tensor.slot)] = allocate(num_bytes(tensor));
    }
    check_cuda(cudaEventCreate(&start_), "cudaEventCreate");
    check_cuda(cudaEventCreate(&stop_), "cudaEventCreate");
  }
  TimingBuffers(const TimingBuffers&) = delete;
  TimingBuffers& operator=(const TimingBuffers&) = delete;
  ~TimingBuffers() {
    for (void* data : owned_) cudaFree(data);
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
  }

  /* Milliseconds of one run: the least mean of a few rounds, or infinite where it fails. */
  float time(cudnnHandle_t handle, GraphProgram& program) {
    program.finish();
    void* workspace = nullptr;
    if (program.workspace_bytes() > 0) workspace = workspace_of(program.workspace_bytes());
    cudaStream_t stream = nullptr;
    check(cudnnGetStream(handle, &stream), "cudnnGetStream");
    std::unique_ptr<Binding> binding;
    float best = std::numeric_limits<float>::infinity();
    try {
      program.run(handle, binding, slots_.data(), workspace);
      for (int round = 0; round < kTimedRounds; ++round) {
        check_cuda(cudaEventRecord(start_, stream), "cudaEventRecord");
        for (int n = 0; n < kTimedRuns; ++n)
          program.run(handle, binding, slots_.data(), workspace);
        check_cuda(cudaEventRecord(stop_, stream), "cudaEventRecord");
        check_cuda(cudaEventSynchronize(stop_), "cudaEventSynchronize");
        float ms = 0;
        check_cuda(cudaEventElapsedTime(&ms, start_, stop_), "cudaEventElapsedTime");
        best = std::min(best, ms / kTimedRuns);
      }
    } catch (const Failure&) {
      return std::numeric_limits<float>::infinity();  // This plan is out; others may run.
    }
    return best;
  }

 private:
  std::vector<void*> slots_;
  std::vector<void*> owned_;
  void* workspace_ = nullptr;
  size_t workspace_bytes_ = 0;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;

  void* allocate(size_t bytes) {
    void* data = nullptr;
    check_cuda(cudaMalloc(&data, bytes), "cudaMalloc");
    owned_.push_back(data);
    // About 1.06 in float16, 0.0115 in float32 and bfloat16.
    check_cuda(cudaMemset(data, 0x3c, bytes), "cudaMemset");
    return data;
  }

  void* workspace_of(size_t bytes) {
    if (workspace_bytes_ < bytes) {
      workspace_ = allocate(bytes);
      workspace_bytes_ = bytes;
    }
    return workspace_;
  }
};

/* Plans operations `first` up to `last` as one step of the program. */
void build_step(const Device& device, GraphProgram& program, const collage_cudnn_graph& source,
                int first, int last, TimingBuffers* buffers) {
  Step& step = program.add(first, last, StepKind::kGraph);
  const auto plan = [&](bool spelled_out) {
    // A part of a split graph cannot be timed by itself, as its inputs come from the part before.
    if (buffers != nullptr && first == 0 && last == source.num_operations)
      step.choose_fastest(device, spelled_out,
                          [&] { return buffers->time(device.handle, program); });
    else
      step.choose(device, spelled_out);
  };
  try {
    plan(false);
  } catch (const std::exception& error) {
    if (!is_attention(source.operations[first])) throw;
    const std::string as_one = error.what();
    try {
      plan(true);
    } catch (const std::exception& other) {
      throw Failure(as_one + "; spelled out: " + other.what());
    }
  }
}

std::unique_ptr<GraphProgram> build_parts(const Device& device, const collage_cudnn_graph& source,
                                          const std::vector<int>& ends, TimingBuffers* buffers) {
  auto program = std::make_unique<GraphProgram>(source);
  int first = 0;
  for (const int last : ends) {
    build_step(device, *program, source, first, last, buffers);
    first = last;
  }
  program->finish();
  return program;
}

std::unique_ptr<GraphProgram> softmax_program(const collage_cudnn_graph& source) {
  auto program = std::make_unique<GraphProgram>(source);
  program->add(0, 1, StepKind::kSoftmaxForward).build_softmax();
  program->finish();
  return program;
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  constexpr size_t kLongest = 400;
  return text.size() > kLongest ? text.substr(0, kLongest) + " …" : text;
}

}  // namespace

std::unique_ptr<Program> build(const Device& device, const collage_cudnn_graph& graph,
                               bool measured) {
  const int count = graph.num_operations;
  if (graph.operations[0].kind == COLLAGE_CUDNN_SOFTMAX) return softmax_program(graph);
  std::unique_ptr<TimingBuffers> buffers;
  if (measured) buffers = std::make_unique<TimingBuffers>(graph);
  try {
    return build_parts(device, graph, {count}, buffers.get());
  } catch (const std::exception& error) {
    const std::string whole = one_line(error.what());
    if (graph.split == 0 || count == 1) throw Failure(whole);
    try {
      return build_parts(device, graph, {1, count}, nullptr);
    } catch (const std::exception& other) {
      throw Failure(whole + "; split: " + one_line(other.what()));
    }
  }
}

std::unique_ptr<Program> load(cudnnHandle_t handle, const collage_cudnn_graph& graph,
                              const unsigned char* plan, size_t bytes) {
  PlanHeader header{};
  if (bytes < sizeof(header)) return nullptr;
  std::memcpy(&header, plan, sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(header.magic)) != 0) return nullptr;
  PlanHeader wanted = current_header();
  wanted.num_steps = header.num_steps;
  if (std::memcmp(&header, &wanted, sizeof(header)) != 0) return nullptr;
  const unsigned char* at = plan + sizeof(header);
  const unsigned char* const end = plan + bytes;
  try {
    auto program = std::make_unique<GraphProgram>(graph);
    for (int32_t n = 0; n < header.num_steps; ++n) {
      StepHeader head{};
      if (static_cast<size_t>(end - at) < sizeof(head)) return nullptr;
      std::memcpy(&head, at, sizeof(head));
      at += sizeof(head);
      if (static_cast<uint64_t>(end - at) < head.bytes || head.first < 0 ||
          head.last <= head.first || head.last > graph.num_operations)
        return nullptr;
      Step& step = program->add(head.first, head.last, head.kind);
      if (head.kind == StepKind::kSoftmaxForward)
        step.build_softmax();
      else
        step.load({handle}, std::vector<unsigned char>(at, at + head.bytes));
      at += head.bytes;
    }
    program->finish();
    return program;
  } catch (const std::exception&) {
    // A plan that this installation cannot read is built anew from the graph.
    return nullptr;
  }
}

cudnnHandle_t create_handle() {
  cudnnHandle_t handle = nullptr;
  check(cudnnCreate(&handle), "cudnnCreate");
  return handle;
}

}  // namespace collage_cudnn
