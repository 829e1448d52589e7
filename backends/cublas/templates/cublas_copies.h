/* What a product's candidates are timed on: owners of what CUDA hands out, and copies of operands. */
#ifndef COLLAGE_CUBLAS_COPIES_H_
#define COLLAGE_CUBLAS_COPIES_H_

#include <algorithm>

#include "cublas_plan.h"

namespace collage_cublas {

constexpr int kMostCopies = 256;

class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes) {
    check(cudaMalloc(&data_, std::max(bytes, size_t{256})), "cudaMalloc");
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  char* data() const { return static_cast<char*>(data_); }

 private:
  void* data_ = nullptr;
};

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Handle {
 public:
  Handle() { check(cublasLtCreate(&handle_), "cublasLtCreate"); }
  ~Handle() { cublasLtDestroy(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator cublasLtHandle_t() const { return handle_; }

 private:
  cublasLtHandle_t handle_ = nullptr;
};

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/* Copies of a product's operands, all filled with the same harmless numbers. */
class Copies {
 public:
  Copies(const collage_cublas_problem& p, int device)
      : element_(static_cast<size_t>(bits_of(p) / 8)),
        a_(padded(elements_a(p))),
        b_(padded(elements_b(p))),
        bias_(p.bias ? padded(p.m) : 0),
        residual_(p.residual ? padded(elements_d(p)) : 0),
        one_(a_ + b_ + bias_ + residual_ + padded(elements_d(p))),
        count_(count(device)),
        memory_(one_ * count_) {
    /* 0x3c3c is 1.06 in float16, 0.0115 in bfloat16 and (twice) in float32. */
    check(cudaMemset(memory_.data(), 0x3c, one_ * count_), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  cublasStatus_t launch_on(const Plan& plan, const collage_cublas_problem& p, size_t copy,
                           cudaStream_t stream) const {
    char* a = memory_.data() + one_ * (copy % count_);
    char *b = a + a_, *bias = b + b_, *residual = bias + bias_;
    return launch(plan, p, a, b, bias, residual, residual + residual_, stream);
  }

 private:
  size_t padded(int64_t elements) const {
    return (static_cast<size_t>(elements) * element_ + 255) / 256 * 256;
  }
  size_t count(int device) const {
    int cache = 0;
    check(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device), "cache size");
    const size_t wanted = 2 * static_cast<size_t>(cache) / one_ + 1;
    return std::min(wanted, size_t{kMostCopies});
  }

  size_t element_, a_, b_, bias_, residual_, one_, count_;
  DeviceMemory memory_;
};

}  // namespace collage_cublas
#endif  // COLLAGE_CUBLAS_COPIES_H_
