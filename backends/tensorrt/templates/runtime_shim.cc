// Runs engines through TensorRT's C++ runtime: deserialized at the first call on a device, one
// execution context per partition, scratch memory from the workspace that all partitions share.
#include <NvInferRuntime.h>

#include <array>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

#include "collage_cuda.h"
#include "collage_tensorrt.h"

namespace {

class Logger : public nvinfer1::ILogger {
 public:
  void log(Severity severity, const char* text) noexcept override {
    if (severity > Severity::kERROR) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    last_ = text;
  }

  std::string last() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return last_.empty() ? "TensorRT gave no reason" : last_;
  }

 private:
  std::mutex mutex_;
  std::string last_;
};

Logger& logger() {
  static Logger& instance = *new Logger();  // outlives whatever TensorRT keeps
  return instance;
}

// An engine belongs to the device that is current when it is deserialized.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    if (cudaGetDevice(&before_) == cudaSuccess && before_ != device) {
      status_ = cudaSetDevice(device);
      changed_ = status_ == cudaSuccess;
    }
  }
  ~DeviceGuard() {
    if (changed_) cudaSetDevice(before_);
  }
  cudaError_t status() const { return status_; }

 private:
  int before_ = 0;
  bool changed_ = false;
  cudaError_t status_ = cudaSuccess;
};

nvinfer1::IRuntime* runtime_of(int device) {
  static std::mutex mutex;
  static std::array<nvinfer1::IRuntime*, kCollageMaxDevices> runtimes{};
  const std::lock_guard<std::mutex> lock(mutex);
  if (runtimes[device] == nullptr) runtimes[device] = nvinfer1::createInferRuntime(logger());
  return runtimes[device];
}

struct Loaded {
  std::unique_ptr<nvinfer1::ICudaEngine> engine;
  std::unique_ptr<nvinfer1::IExecutionContext> context;  // destroyed before its engine
  int64_t memory = 0;
};

struct State {
  std::mutex mutex;
  std::array<Loaded, kCollageMaxDevices> devices;
};

State* state_of(collage_tensorrt_engine* engine) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (engine->state == nullptr) engine->state = new State();
  return static_cast<State*>(engine->state);
}

int load(const collage_tensorrt_engine& engine, int device, Loaded* loaded) {
  nvinfer1::IRuntime* runtime = runtime_of(device);
  if (runtime == nullptr)
    return collage_fail("RuntimeError", "%s: no TensorRT runtime: %s", engine.symbol,
                        logger().last().c_str());
  loaded->engine.reset(runtime->deserializeCudaEngine(engine.plan, engine.size));
  if (!loaded->engine)
    return collage_fail("RuntimeError", "%s: TensorRT does not load its engine: %s", engine.symbol,
                        logger().last().c_str());
  loaded->memory = loaded->engine->getDeviceMemorySizeV2();
  loaded->context.reset(loaded->engine->createExecutionContext(
      nvinfer1::ExecutionContextAllocationStrategy::kUSER_MANAGED));
  if (!loaded->context)
    return collage_fail("RuntimeError", "%s: TensorRT makes no execution context: %s",
                        engine.symbol, logger().last().c_str());
  return 0;
}

}  // namespace

extern "C" int collage_tensorrt_run(collage_tensorrt_engine* engine, const TVMFFIAny* args,
                                    int32_t num_args) {
  const int count = engine->num_inputs + engine->num_outputs;
  if (num_args != count)
    return collage_fail("TypeError", "%s: expected %d arguments, got %d", engine->symbol, count,
                        static_cast<int>(num_args));
  const DLTensor* first = collage_tensor(&args[0]);
  if (first == nullptr) return collage_fail("TypeError", "argument 0 is not a tensor");
  const int device = collage_cuda_device(first);
  if (device < 0 || device >= kCollageMaxDevices)
    return collage_fail("ValueError", "%s: device %d", engine->symbol, device);
  const DeviceGuard guard(device);
  COLLAGE_CUDA_CHECK(guard.status());
  State* state = state_of(engine);
  // A context runs one call at a time.
  const std::lock_guard<std::mutex> lock(state->mutex);
  Loaded& loaded = state->devices[device];
  if (!loaded.context && load(*engine, device, &loaded) != 0) {
    loaded = Loaded();
    return -1;
  }
  for (int i = 0; i < count; ++i) {
    const collage_tensorrt_tensor& tensor = engine->tensors[i];
    void* data = collage_cuda_tensor(args, i, tensor.num_elements, tensor.bits);
    if (data == nullptr) return -1;
    const bool input = i < engine->num_inputs;
    char name[32];
    std::snprintf(name, sizeof(name), input ? "input%d" : "output%d",
                  input ? i : i - engine->num_inputs);
    if (!loaded.context->setTensorAddress(name, data))
      return collage_fail("RuntimeError", "%s: %s: %s", engine->symbol, name,
                          logger().last().c_str());
  }
  if (loaded.memory > 0) {
    void* memory = collage_cuda_workspace(device, static_cast<size_t>(loaded.memory));
    if (memory == nullptr)
      return collage_fail("RuntimeError", "%s: no %lld bytes of device memory are left",
                          engine->symbol, static_cast<long long>(loaded.memory));
    loaded.context->setDeviceMemoryV2(memory, loaded.memory);
  }
  if (!loaded.context->enqueueV3(collage_cuda_stream(device)))
    return collage_fail("RuntimeError", "%s: %s", engine->symbol, logger().last().c_str());
  return 0;
}

extern "C" void collage_tensorrt_release(collage_tensorrt_engine* engine) {
  State* state = static_cast<State*>(engine->state);
  engine->state = nullptr;
  // At the end of the process CUDA may be gone already; its driver takes everything back.
  int device = 0;
  if (state != nullptr && cudaGetDevice(&device) == cudaSuccess) delete state;
}
