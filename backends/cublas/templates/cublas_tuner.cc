/* Times cublasLt's candidate algorithms for a product; loaded while compiling, where a GPU is there.
 *
 * Each candidate's launches are captured into a CUDA graph, so that short kernels are not hidden
 * behind the time of launching them. Consecutive launches work on different copies of the data,
 * which together exceed the L2 cache, and candidates take turns, so that a drift of the clock meets
 * all of them alike.
 *
 * Preparing may take far longer than timing: it loads cublasLt and its kernels. Others on the device
 * are disturbed by a few single launches, so that only timing needs the device to itself. */
#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include "cublas_copies.h"

namespace collage_cublas {
namespace {

constexpr int kRounds = 7, kEstimates = 3;
constexpr int kLeastLaunches = 2, kMostLaunches = 64;
constexpr float kGraphMs = 1.0f;
/* A candidate slower than the fastest by this factor is timed no further. */
constexpr float kHopeless = 1.3f;
/* A candidate must be this much faster than cublasLt's own first choice to replace it. */
constexpr float kWorthwhile = 0.99f;

/* One candidate: its launches as a graph, and how long they took. */
struct Candidate {
  Plan plan;
  cudaGraphExec_t graph = nullptr;
  std::vector<float> ms;

  float median() const {
    std::vector<float> sorted = ms;
    std::nth_element(sorted.begin(), sorted.begin() + sorted.size() / 2, sorted.end());
    return sorted[sorted.size() / 2];
  }
};

/* Candidates of one product, ready to be timed. */
class Tuner {
 public:
  Tuner(const collage_cublas_problem& problem, int device)
      : problem_(problem), copies_(problem, device) {}
  ~Tuner() {
    for (const Candidate& candidate : candidates_)
      if (candidate.graph != nullptr) cudaGraphExecDestroy(candidate.graph);
  }
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  /* Finds the candidates, at most `count`; those stay that run, also when captured. */
  void prepare(int count) {
    propose(count);
    keep_those_that([this](Candidate& candidate) { return runs(candidate); });
    launches_ = launches_per_graph();
    size_t copy = 0;
    keep_those_that([&](Candidate& candidate) {
      copy += static_cast<size_t>(launches_);
      return capture(candidate, copy);
    });
  }

  /* Times every candidate. Returns the fastest; `first` is the one that cublasLt ranks first. */
  const Candidate& fastest(const Candidate** first, int* measured) {
    for (const Candidate& candidate : candidates_)
      check(cudaGraphLaunch(candidate.graph, stream_), "cudaGraphLaunch");
    check(cudaStreamSynchronize(stream_), "running a graph");
    for (int round = 0; round < kRounds; ++round) {
      const float limit = round == 0 ? 0.0f : kHopeless * fastest_candidate().median();
      for (Candidate& candidate : candidates_)
        if (round == 0 || candidate.median() <= limit) time_once(candidate);
    }
    const Candidate& best = fastest_candidate();
    *first = &candidates_.front();
    *measured = static_cast<int>(candidates_.size());
    return best.median() > kWorthwhile * (*first)->median() ? **first : best;
  }

 private:
  void propose(int count) {
    Plan plan = describe(handle_, problem_);
    size_t workspace = 0;
    for (const cublasLtMatmulHeuristicResult_t& found : candidates(plan, problem_, count)) {
      Candidate candidate;
      candidate.plan = plan;
      candidate.plan.algorithm = found.algo;
      candidate.plan.workspace_bytes = found.workspaceSize;
      workspace = std::max(workspace, found.workspaceSize);
      candidates_.push_back(candidate);
    }
    workspace_ = std::make_unique<DeviceMemory>(workspace);
    for (Candidate& candidate : candidates_) candidate.plan.workspace = workspace_->data();
  }

  template <typename Condition>
  void keep_those_that(Condition condition) {
    std::vector<Candidate> kept;
    for (Candidate& candidate : candidates_)
      if (condition(candidate)) kept.push_back(candidate);
    candidates_ = kept;
    if (kept.empty()) throw std::runtime_error("none of cublasLt's algorithms runs this product");
  }

  const Candidate& fastest_candidate() const {
    return *std::min_element(
        candidates_.begin(), candidates_.end(),
        [](const Candidate& a, const Candidate& b) { return a.median() < b.median(); });
  }

  void time_once(Candidate& candidate) {
    check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
    check(cudaGraphLaunch(candidate.graph, stream_), "cudaGraphLaunch");
    candidate.ms.push_back(elapsed() / static_cast<float>(launches_));
  }

  /* A call, which also loads the kernels. */
  bool runs(const Candidate& candidate) {
    const cublasStatus_t status = copies_.launch_on(candidate.plan, problem_, 0, stream_);
    check(cudaStreamSynchronize(stream_), "running a candidate");
    return status == CUBLAS_STATUS_SUCCESS;
  }

  /* As many as take about a millisecond, going by cublasLt's first choice. Others may be using the
   * device, so the shortest of a few estimates counts. */
  int launches_per_graph() {
    float ms = std::numeric_limits<float>::infinity();
    for (int estimate = 0; estimate < kEstimates; ++estimate) {
      check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
      for (size_t copy = 0; copy < kLeastLaunches; ++copy)
        check(copies_.launch_on(candidates_.front().plan, problem_, copy, stream_),
              "cublasLtMatmul");
      ms = std::min(ms, elapsed() / kLeastLaunches);
    }
    return std::clamp(static_cast<int>(kGraphMs / std::max(ms, 1e-4f)), kLeastLaunches,
                      kMostLaunches);
  }

  bool capture(Candidate& candidate, size_t first_copy) {
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (int i = 0; i < launches_ && status == CUBLAS_STATUS_SUCCESS; ++i)
      status = copies_.launch_on(candidate.plan, problem_, first_copy + static_cast<size_t>(i),
                                 stream_);
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
    const bool captured = status == CUBLAS_STATUS_SUCCESS && ended == cudaSuccess;
    const cudaError_t made =
        captured ? cudaGraphInstantiate(&candidate.graph, graph, 0) : cudaSuccess;
    if (graph != nullptr) cudaGraphDestroy(graph);
    check(made, "cudaGraphInstantiate");
    if (!captured) cudaGetLastError(); /* A capture that failed leaves its error behind. */
    return captured;
  }

  float elapsed() {
    float ms = 0.0f;
    check(cudaEventRecord(end_, stream_), "cudaEventRecord");
    check(cudaEventSynchronize(end_), "cudaEventSynchronize");
    check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
    return ms;
  }

  collage_cublas_problem problem_;
  Copies copies_;
  Handle handle_;
  std::unique_ptr<DeviceMemory> workspace_;
  Stream stream_;
  Event begin_, end_;
  std::vector<Candidate> candidates_;
  int launches_ = 0;
};

/* The data of a host tensor of 64-bit words, or NULL with an error raised. */
void* words(const TVMFFIAny* arg, int64_t count) {
  const DLTensor* tensor = collage_tensor(arg);
  if (tensor == nullptr || tensor->device.device_type != kDLCPU || tensor->dtype.bits != 64 ||
      !collage_is_contiguous(tensor) || collage_num_elements(tensor) != count) {
    collage_fail("TypeError", "expected a host tensor of %lld 64-bit words",
                 static_cast<long long>(count));
    return nullptr;
  }
  return collage_data(tensor);
}

/* What collage_cublas_prepare made, or NULL with an error raised. */
Tuner* prepared(const TVMFFIAny* arg) {
  if (arg->type_index == kTVMFFIOpaquePtr) return static_cast<Tuner*>(arg->v_ptr);
  collage_fail("TypeError", "expected a product's prepared candidates");
  return nullptr;
}

}  // namespace
}  // namespace collage_cublas

/* (int64[4]): cublasLt's version, the driver's, compute capability and multiprocessors of device 0. */
COLLAGE_EXPORT(collage_cublas_facts) {
  using namespace collage_cublas;
  COLLAGE_CHECK_ARGS(1);
  auto* facts = static_cast<int64_t*>(words(&args[0], 4));
  if (facts == nullptr) return -1;
  try {
    int driver = 0;
    check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    facts[0] = static_cast<int64_t>(cublasLtGetVersion());
    facts[1] = driver;
    device_facts(0, &facts[2], &facts[3]);
  } catch (const std::exception& error) {
    return collage_fail("RuntimeError", "cublas: %s", error.what());
  }
  return 0;
}

/* (problem int64[], candidates int): the product's candidates, prepared. The caller discards them. */
COLLAGE_EXPORT(collage_cublas_prepare) {
  using namespace collage_cublas;
  COLLAGE_CHECK_ARGS(2);
  const auto* given = static_cast<const int64_t*>(
      words(&args[0], sizeof(collage_cublas_problem) / sizeof(int64_t)));
  if (given == nullptr) return -1;
  try {
    collage_cublas_problem problem;
    std::memcpy(&problem, given, sizeof(problem));
    check(cudaSetDevice(0), "cudaSetDevice");
    auto tuner = std::make_unique<Tuner>(problem, 0);
    tuner->prepare(static_cast<int>(args[1].v_int64));
    result->type_index = kTVMFFIOpaquePtr;
    result->zero_padding = 0;
    result->v_ptr = tuner.release();
  } catch (const std::exception& error) {
    return collage_fail("RuntimeError", "cublas: %s", error.what());
  }
  return 0;
}

/* (prepared, chosen int64[9], times float64[3]): the algorithm in eight words after its workspace's
 * bytes; seconds of it and of cublasLt's first choice, candidates measured. The device must be the
 * caller's alone meanwhile. */
COLLAGE_EXPORT(collage_cublas_measure) {
  using namespace collage_cublas;
  COLLAGE_CHECK_ARGS(3);
  Tuner* tuner = prepared(&args[0]);
  auto* chosen = tuner == nullptr ? nullptr : static_cast<int64_t*>(words(&args[1], 9));
  auto* times = chosen == nullptr ? nullptr : static_cast<double*>(words(&args[2], 3));
  if (times == nullptr) return -1;
  try {
    const Candidate* first = nullptr;
    int measured = 0;
    const Candidate& best = tuner->fastest(&first, &measured);
    chosen[0] = static_cast<int64_t>(best.plan.workspace_bytes);
    std::memcpy(&chosen[1], &best.plan.algorithm, sizeof(best.plan.algorithm));
    times[0] = best.median() * 1e-3;
    times[1] = first->median() * 1e-3;
    times[2] = measured;
  } catch (const std::exception& error) {
    return collage_fail("RuntimeError", "cublas: %s", error.what());
  }
  return 0;
}

/* (prepared): frees what was prepared. */
COLLAGE_EXPORT(collage_cublas_discard) {
  COLLAGE_CHECK_ARGS(1);
  const auto* tuner = collage_cublas::prepared(&args[0]);
  if (tuner == nullptr) return -1;
  delete tuner;
  return 0;
}
