/* What the entry points of one IRModule's CUTLASS partitions and its kernel units agree on.
 *
 * A unit is one source file with one kernel. It defines, with the names that the frame gives it,
 *
 *     extern "C" int COLLAGE_KERNEL(const collage_cutlass_call* call);
 *     extern "C" size_t COLLAGE_KERNEL_WORKSPACE(const int64_t* sizes);
 *
 * The first launches on call->stream and returns at once: 0, a cudaError_t (positive), or a negated
 * cutlass::Status. It may be captured into a CUDA graph, so it neither synchronizes nor allocates.
 */
#ifndef COLLAGE_CUTLASS_H_
#define COLLAGE_CUTLASS_H_

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

typedef struct collage_cutlass_call {
  int device;                 /* the CUDA device, current for the calling thread */
  cudaStream_t stream;        /* where to launch */
  void* workspace;            /* COLLAGE_KERNEL_WORKSPACE(sizes) bytes, 256-byte aligned, or NULL for 0 */
  const int64_t* sizes;       /* KernelSpec.sizes */
  const float* scalars;       /* KernelSpec.scalars */
  const void* const* inputs;  /* KernelSpec.inputs, dense row-major, 256-byte aligned */
  void* output;               /* KernelSpec.output */
} collage_cutlass_call;

typedef int (*collage_cutlass_kernel)(const collage_cutlass_call* call);
typedef size_t (*collage_cutlass_workspace)(const int64_t* sizes);

#ifdef __cplusplus

#include <mutex>

namespace collage {

constexpr int kMaxDevices = 64;

/* Device facts and function attributes that a kernel needs, looked up once per device.
 * `make(device, &value)` returns a cudaError_t; what failed is tried again at the next call. */
template <class Value>
class PerDevice {
 public:
  template <class Make>
  cudaError_t get(int device, Value* value, Make make) {
    if (device < 0 || device >= kMaxDevices) return cudaErrorInvalidDevice;
    std::lock_guard<std::mutex> guard(mutex_);
    if (!known_[device]) {
      cudaError_t error = make(device, &values_[device]);
      if (error != cudaSuccess) return error;
      known_[device] = true;
    }
    *value = values_[device];
    return cudaSuccess;
  }

 private:
  std::mutex mutex_;
  bool known_[kMaxDevices] = {};
  Value values_[kMaxDevices] = {};
};

/* Allows a kernel more dynamic shared memory than the default 48 KiB; a PerDevice's `make`. */
template <class Kernel>
inline cudaError_t allow_shared_memory(Kernel* kernel, int bytes) {
  if (bytes < (48 << 10)) return cudaSuccess;
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                              cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

}  // namespace collage

#endif
#endif /* COLLAGE_CUTLASS_H_ */
