/* The part of the cuBLAS backend that is compiled once; each product is data to it.
 *
 * The first call on a device makes a plan: handle, descriptors, algorithm, workspace. Every later
 * call copies one descriptor and launches. */
#include <cstring>
#include <mutex>

#include "cublas_plan.h"

namespace collage_cublas {
namespace {

static_assert(COLLAGE_CUBLAS_MAX_DEVICES == kCollageMaxDevices, "one plan per device");
static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(collage_cublas_choice::algorithm),
              "a stored algorithm is cublasLt's structure");

/* Makes a device current, and the former one again afterwards. */
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) : device_(device) {
    check(cudaGetDevice(&former_), "cudaGetDevice");
    if (former_ != device_) check(cudaSetDevice(device_), "cudaSetDevice");
  }
  ~CurrentDevice() {
    if (former_ != device_) cudaSetDevice(former_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int device_, former_ = 0;
};

/* One handle per device; the caller holds the lock that guards plans. */
cublasLtHandle_t handle_of(int device) {
  static cublasLtHandle_t handles[kCollageMaxDevices];
  if (handles[device] == nullptr) check(cublasLtCreate(&handles[device]), "cublasLtCreate");
  return handles[device];
}

/* Takes the stored algorithm, if it is one of this library and this kind of device. */
bool take_choice(Plan& plan, const collage_cublas_problem& problem,
                 const collage_cublas_choice* choice, int device) {
  if (choice == nullptr || choice->version != static_cast<int64_t>(cublasLtGetVersion()))
    return false;
  int64_t compute_capability, multiprocessors;
  device_facts(device, &compute_capability, &multiprocessors);
  if (choice->compute_capability != compute_capability ||
      choice->multiprocessors != multiprocessors)
    return false;
  std::memcpy(&plan.algorithm, choice->algorithm, sizeof(plan.algorithm));
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(plan.handle, &plan.operation, &plan.a, &plan.b, &plan.d, &plan.d,
                              &plan.algorithm, &result);
  if (status != CUBLAS_STATUS_SUCCESS ||
      result.workspaceSize > static_cast<size_t>(problem.workspace_limit))
    return false;
  plan.workspace_bytes = result.workspaceSize;
  return true;
}

Plan* make_plan(const collage_cublas_product& product, int device) {
  const collage_cublas_problem& problem = *product.problem;
  Plan plan = describe(handle_of(device), problem);
  if (!take_choice(plan, problem, product.choice, device)) {
    const cublasLtMatmulHeuristicResult_t best = candidates(plan, problem, 1).front();
    plan.algorithm = best.algo;
    plan.workspace_bytes = best.workspaceSize;
  }
  if (plan.workspace_bytes > 0) {
    plan.workspace = collage_cuda_workspace(device, plan.workspace_bytes);
    if (plan.workspace == nullptr)
      throw std::runtime_error("no device memory for a workspace of " +
                               std::to_string(plan.workspace_bytes) + " bytes");
  }
  return new Plan(plan);
}

/* The plan of a product on a device; made by the first call and kept. */
const Plan& plan_of(collage_cublas_product* product, int device) {
  void** place = &product->plans[device];
  void* plan = __atomic_load_n(place, __ATOMIC_ACQUIRE);
  if (plan == nullptr) {
    static std::mutex mutex;
    const std::lock_guard<std::mutex> lock(mutex);
    plan = __atomic_load_n(place, __ATOMIC_ACQUIRE);
    if (plan == nullptr) {
      plan = make_plan(*product, device);
      __atomic_store_n(place, plan, __ATOMIC_RELEASE);
    }
  }
  return *static_cast<const Plan*>(plan);
}

bool aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % kAlignment == 0; }

int fail(const collage_cublas_problem& p, const char* message) {
  static const char* const names[] = {"float16", "bfloat16", "float32"};
  return collage_fail("RuntimeError", "cublas: %s (%s %c%c m=%lld n=%lld k=%lld batch=%lld)",
                      message, names[p.dtype], p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N',
                      static_cast<long long>(p.m), static_cast<long long>(p.n),
                      static_cast<long long>(p.k), static_cast<long long>(p.batch));
}

}  // namespace
}  // namespace collage_cublas

extern "C" __attribute__((visibility("hidden"))) void collage_cublas_reserve_workspace(
    int64_t bytes) {
  CollageWorkspaceReservation(static_cast<size_t>(bytes));
}

extern "C" __attribute__((visibility("hidden"))) int collage_cublas_run(
    collage_cublas_product* product, const collage_cublas_arguments* where,
    const TVMFFIAny* args) {
  using namespace collage_cublas;
  const collage_cublas_problem& p = *product->problem;
  const int bits = bits_of(p);
  void* a = collage_cuda_tensor(args, where->a, elements_a(p), bits);
  void* b = a == nullptr ? a : collage_cuda_tensor(args, where->b, elements_b(p), bits);
  void* d = b == nullptr ? b : collage_cuda_tensor(args, where->result, elements_d(p), bits);
  if (d == nullptr) return -1;
  void* bias = nullptr;
  if (p.bias && (bias = collage_cuda_tensor(args, where->bias, p.m, bits)) == nullptr) return -1;
  void* residual = nullptr;
  if (p.residual && (residual = collage_cuda_tensor(args, where->residual, elements_d(p), bits)) ==
                        nullptr)
    return -1;
  for (const void* data : {a, b, d, bias, residual})
    if (!aligned(data))
      return collage_fail("ValueError", "an argument is not aligned to %u bytes", kAlignment);
  const int device = collage_cuda_device(collage_tensor(&args[where->result]));
  if (device < 0 || device >= kCollageMaxDevices)
    return collage_fail("ValueError", "device %d: at most %d are supported", device,
                        kCollageMaxDevices);
  try {
    const CurrentDevice current(device);
    const Plan& plan = plan_of(product, device);
    check(launch(plan, p, a, b, bias, residual, d, collage_cuda_stream(device)), "cublasLtMatmul");
  } catch (const std::exception& error) {
    return fail(p, error.what());
  }
  return 0;
}
