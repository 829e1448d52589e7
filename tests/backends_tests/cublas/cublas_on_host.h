// What the stand-in remembers and computes with: counters, its clock, opaque structures, products.
#pragma once

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr int kAlgorithms = 5, kRefuses = 3, kNotCapturable = 4;
std::array<float, kAlgorithms> times_us = {10.0f, 7.0f, 12.0f, 1.0f, 1.0f};
float clock_us = 0.0f, captured_us = 0.0f;
bool capturing = false, capture_broken = false;
size_t version = 131000;
int last_algorithm = -1;
int64_t heuristics = 0, handles = 0, allocations = 0, launches = 0;
int64_t alive = 0;
int (*watcher)(const char* call) = nullptr;

// Tells the test of a call; whether the test lets it succeed.
bool allowed(const char* call) { return watcher == nullptr || watcher(call) == 0; }

template <typename T>
T* made(T* object) {
  ++alive;
  return object;
}
template <typename T>
void unmade(T* object) {
  if (object != nullptr) --alive;
  delete object;
}

size_t workspace_of(int algorithm) { return static_cast<size_t>(algorithm) * 1024; }

struct Layout {
  uint64_t type, rows, cols;
  int64_t ld, batch, stride;
};
struct Operation {
  uint64_t compute, scale, epilogue;
  int64_t transpose_a, transpose_b;
  const void* bias;
};
struct Preference {
  uint64_t workspace, reduction, alignments;
};

static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(Operation) <= sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));

template <typename T, typename Opaque>
T read(const Opaque* opaque) {
  T value;
  std::memcpy(&value, opaque, sizeof(value));
  return value;
}
template <typename T, typename Opaque>
void write(Opaque* opaque, const T& value) {
  std::memcpy(opaque, &value, sizeof(value));
}
template <typename T>
bool take(const void* buffer, size_t size, T* out) {
  if (size != sizeof(T)) return false;
  std::memcpy(out, buffer, sizeof(T));
  return true;
}

double load(const void* data, int64_t index, uint64_t type) {
  if (type == CUDA_R_16F) return __half2float(static_cast<const __half*>(data)[index]);
  if (type == CUDA_R_16BF) return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[index]);
  return static_cast<const float*>(data)[index];
}
void store(void* data, int64_t index, uint64_t type, double value) {
  if (type == CUDA_R_16F)
    static_cast<__half*>(data)[index] = __double2half(value);
  else if (type == CUDA_R_16BF)
    static_cast<__nv_bfloat16*>(data)[index] = __double2bfloat16(value);
  else
    static_cast<float*>(data)[index] = static_cast<float>(value);
}

double activate(double x, uint64_t epilogue) {
  if (epilogue & CUBLASLT_EPILOGUE_RELU) return x > 0 ? x : 0;
  if (epilogue & CUBLASLT_EPILOGUE_GELU)
    return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  return x;
}

// Whether the matrices of an operation fit each other.
bool fits(const Operation& op, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  const uint64_t m = op.transpose_a == CUBLAS_OP_T ? a.cols : a.rows;
  const uint64_t k = op.transpose_a == CUBLAS_OP_T ? a.rows : a.cols;
  const uint64_t kb = op.transpose_b == CUBLAS_OP_T ? b.cols : b.rows;
  const uint64_t n = op.transpose_b == CUBLAS_OP_T ? b.rows : b.cols;
  for (const Layout* layout : {&a, &b, &c, &d})
    if (layout->ld < static_cast<int64_t>(layout->rows) || layout->batch != d.batch ||
        layout->type != d.type)
      return false;
  return k == kb && d.rows == m && d.cols == n && c.rows == m && c.cols == n &&
         op.scale == CUDA_R_32F &&
         (op.compute == CUBLAS_COMPUTE_32F || op.compute == CUBLAS_COMPUTE_32F_FAST_TF32);
}

}  // namespace
