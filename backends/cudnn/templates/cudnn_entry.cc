/* The entry of every cuDNN partition: arguments, stream, workspace, and one program per graph. */
#include <array>
#include <exception>
#include <memory>
#include <mutex>

#include "collage_cuda.h"
#include "collage_cudnn.h"
#include "cudnn_program.h"

static_assert(COLLAGE_CUDNN_MAX_DEVICES == kCollageMaxDevices, "one entry per device");

namespace {

using collage_cudnn::Binding;
using collage_cudnn::Failure;
using collage_cudnn::Program;

struct Device {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
};

/* Never destroyed: CUDA may be gone before static objects are. */
Device& device_state(int device) {
  static auto& devices = *new std::array<Device, kCollageMaxDevices>;
  return devices[device];
}

constexpr int kBits[] = {16, 16, 32};

int64_t num_elements(const collage_cudnn_tensor& tensor) {
  int64_t count = 1;
  for (int axis = 0; axis < tensor.rank; ++axis) count *= tensor.dims[axis];
  return count;
}

void check_cuda(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw Failure(std::string(what) + ": " + cudaGetErrorString(status));
}

void check_cudnn(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw Failure(std::string(what) + ": " + cudnnGetErrorString(status));
}

/* The handle of the current device, on this stream. */
cudnnHandle_t prepare_handle(Device& state, cudaStream_t stream) {
  if (state.handle == nullptr) {
    state.handle = collage_cudnn::create_handle();
    check_cudnn(cudnnSetStream(state.handle, stream), "cudnnSetStream");
    state.stream = stream;
  } else if (state.stream != stream) {
    check_cudnn(cudnnSetStream(state.handle, stream), "cudnnSetStream");
    state.stream = stream;
  }
  return state.handle;
}

/* Loads or builds the program of a graph: the first call on a device. */
Program* prepare_program(collage_cudnn_shared& shared, Device& state, int device,
                         cudaStream_t stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing");
  if (capture != cudaStreamCaptureStatusNone)
    throw Failure("its first call is being captured into a CUDA graph; call it once before");
  const cudnnHandle_t handle = prepare_handle(state, stream);
  std::unique_ptr<Program> program =
      collage_cudnn::load(handle, *shared.graph, shared.plan, shared.plan_bytes);
  if (program == nullptr) program = collage_cudnn::build({handle}, *shared.graph, false);
  shared.programs[device] = program.release();
  return static_cast<Program*>(shared.programs[device]);
}

void run(collage_cudnn_site& site, int device, void* const* slots) {
  Device& state = device_state(device);
  const std::lock_guard<std::mutex> lock(state.mutex);
  int current = -1;
  check_cuda(cudaGetDevice(&current), "cudaGetDevice");
  if (current != device) check_cuda(cudaSetDevice(device), "cudaSetDevice");
  const cudaStream_t stream = collage_cuda_stream(device);
  auto* program = static_cast<Program*>(site.shared->programs[device]);
  if (program == nullptr) program = prepare_program(*site.shared, state, device, stream);
  const cudnnHandle_t handle = prepare_handle(state, stream);
  void* workspace = nullptr;
  if (program->workspace_bytes() > 0) {
    workspace = collage_cuda_workspace(device, program->workspace_bytes());
    if (workspace == nullptr)
      throw Failure("no memory for a workspace of " + std::to_string(program->workspace_bytes()) +
                    " bytes");
  }
  std::unique_ptr<Binding> binding(static_cast<Binding*>(site.bindings[device]));
  site.bindings[device] = nullptr;
  program->run(handle, binding, slots, workspace);
  site.bindings[device] = binding.release();
}

}  // namespace

int collage_cudnn_call(collage_cudnn_site* site, const TVMFFIAny* args, int32_t num_args) {
  if (num_args != site->num_arguments)
    return collage_fail("TypeError", "%s: expected %d arguments, got %d", site->symbol,
                        static_cast<int>(site->num_arguments), static_cast<int>(num_args));
  const collage_cudnn_graph& graph = *site->shared->graph;
  void* slots[COLLAGE_CUDNN_MAX_SLOTS] = {};
  for (int index = 0; index < graph.num_tensors; ++index) {
    const collage_cudnn_tensor& tensor = graph.tensors[index];
    if (tensor.slot < 0) continue;
    void* data = collage_cuda_tensor(args, site->arguments[tensor.slot], num_elements(tensor),
                                     kBits[tensor.dtype]);
    if (data == nullptr) return -1;
    slots[tensor.slot] = data;
  }
  const int device = collage_cuda_device(collage_tensor(&args[site->arguments[0]]));
  if (device < 0 || device >= kCollageMaxDevices)
    return collage_fail("ValueError", "%s: device %d is beyond the supported %d", site->symbol,
                        device, kCollageMaxDevices);
  try {
    run(*site, device, slots);
  } catch (const std::exception& error) {
    return collage_fail("RuntimeError", "%s (cuDNN %s): %s", site->symbol, graph.name,
                        error.what());
  }
  return 0;
}

void collage_cudnn_reserve_workspace(size_t bytes) { CollageWorkspaceReservation{bytes}; }
