/* Streams, workspace and arguments for the entry points of CUDA backends (C++17).
 *
 * An entry launches on TVM's current stream and returns at once: it never synchronizes and, after
 * its first call, never allocates, so that TVM can capture it into a CUDA graph after a warm-up
 * call. What partitions share lives in inline functions: one copy per linked library.
 */
#ifndef COLLAGE_CUDA_H_
#define COLLAGE_CUDA_H_

#include <cuda_runtime.h>
#include <tvm/ffi/extra/c_env_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "collage_ffi.h"

/* Leaves the entry with an error when a CUDA runtime call fails. */
#define COLLAGE_CUDA_CHECK(expr)                                                              \
  do {                                                                                        \
    const cudaError_t collage_status = (expr);                                                \
    if (collage_status != cudaSuccess)                                                        \
      return collage_fail("RuntimeError", "%s: %s: %s", __func__, #expr,                      \
                          cudaGetErrorString(collage_status));                                \
  } while (0)

/* Devices of one machine that a process can use; state is kept per device. */
constexpr int kCollageMaxDevices = 16;

/* The stream that TVM runs on: its own choice, or the one that is being captured. */
inline cudaStream_t collage_cuda_stream(int device) {
  return static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, device));
}

inline int collage_cuda_device(const DLTensor* tensor) { return tensor->device.device_id; }

/* The largest workspace that any partition of this library asked for while it was loaded. */
inline std::atomic<size_t>& collage_reserved_workspace() {
  static std::atomic<size_t> bytes{0};
  return bytes;
}

struct CollageWorkspaceReservation {
  explicit CollageWorkspaceReservation(size_t bytes) {
    std::atomic<size_t>& most = collage_reserved_workspace();
    size_t seen = most.load();
    while (seen < bytes && !most.compare_exchange_weak(seen, bytes)) {
    }
  }
};

#define COLLAGE_CONCAT_(a, b) a##b
#define COLLAGE_CONCAT(a, b) COLLAGE_CONCAT_(a, b)
/* At namespace scope: makes the first allocation large enough for this partition. */
#define COLLAGE_RESERVE_WORKSPACE(bytes) \
  static const CollageWorkspaceReservation COLLAGE_CONCAT(collage_reservation_, __LINE__)(bytes)

/* Scratch memory of a device, shared by all partitions: they run one after the other on a stream.
 * A block that became too small is kept, because a captured graph may still point at it. Returns
 * NULL when the device has no memory left. */
inline void* collage_cuda_workspace(int device, size_t bytes) {
  struct Block {
    std::mutex mutex;
    void* data = nullptr;
    size_t bytes = 0;
  };
  static std::array<Block, kCollageMaxDevices> blocks;
  if (device < 0 || device >= kCollageMaxDevices) return nullptr;
  Block& block = blocks[device];
  const std::lock_guard<std::mutex> lock(block.mutex);
  if (block.data == nullptr || block.bytes < bytes) {
    const size_t wanted = std::max({bytes, collage_reserved_workspace().load(), size_t{256}});
    void* data = nullptr;
    if (cudaMalloc(&data, wanted) != cudaSuccess) {
      cudaGetLastError();
      return nullptr;
    }
    block.data = data;
    block.bytes = wanted;
  }
  return block.data;
}

/* The data of a contiguous tensor argument in device memory, of known size and element width, or
 * NULL with an error raised. Sizes are static in a partition: this guards against a wrong caller. */
inline void* collage_cuda_tensor(const TVMFFIAny* args, int index, int64_t num_elements, int bits) {
  const DLTensor* tensor = collage_tensor(&args[index]);
  if (tensor == nullptr) {
    collage_fail("TypeError", "argument %d is not a tensor", index);
  } else if (tensor->device.device_type != kDLCUDA) {
    collage_fail("TypeError", "argument %d is not in the memory of a CUDA device", index);
  } else if (tensor->dtype.bits * tensor->dtype.lanes != bits) {
    collage_fail("TypeError", "argument %d has elements of %d bits, expected %d", index,
                 tensor->dtype.bits * tensor->dtype.lanes, bits);
  } else if (!collage_is_contiguous(tensor)) {
    collage_fail("ValueError", "argument %d is not contiguous", index);
  } else if (collage_num_elements(tensor) != num_elements) {
    collage_fail("ValueError", "argument %d has %lld elements, expected %lld", index,
                 static_cast<long long>(collage_num_elements(tensor)),
                 static_cast<long long>(num_elements));
  } else {
    return collage_data(tensor);
  }
  return nullptr;
}

#endif /* COLLAGE_CUDA_H_ */
