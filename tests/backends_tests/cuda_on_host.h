// CUDA's execution model on the CPU: enough of it to run the kernels that TVM generates where there is
// no GPU. Every thread of a block is a fiber; blocks run one after the other, so shared memory is
// static. Barriers, shuffles and WMMA have their documented meaning; memory spaces, caches, timing and
// races between warps are not modelled.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <ucontext.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#undef __global__
#undef __shared__
#undef __device__
#undef __host__
#undef __forceinline__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define threadIdx (cuda_on_host::current->thread)
#define blockIdx (cuda_on_host::block)

inline float max(float a, float b) { return std::fmax(a, b); }
inline float min(float a, float b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline int max(int a, int b) { return std::max(a, b); }
inline int min(int a, int b) { return std::min(a, b); }
inline int64_t max(int64_t a, int64_t b) { return std::max(a, b); }
inline int64_t min(int64_t a, int64_t b) { return std::min(a, b); }
inline long long max(long long a, long long b) { return std::max(a, b); }
inline long long min(long long a, long long b) { return std::min(a, b); }
using std::exp, std::fabs, std::isnan, std::log1p;
inline float __int_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline double __longlong_as_double(unsigned long long bits) {
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
// Not inlined: what is compiled is contracted to fused operations, as nvcc does, these are not.
__attribute__((noinline)) static float __fmul_rn(float x, float y) { return x * y; }
__attribute__((noinline)) static double __dmul_rn(double x, double y) { return x * y; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }

namespace cuda_on_host {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

// A spinning thread waits for what another one does, and looks again when all others wait, too.
enum class State { kReady, kSpinning, kAtBlockBarrier, kAtWarpBarrier, kDone };

constexpr unsigned kWarp = 32;
constexpr size_t kStackBytes = 256 << 10, kDynamicSharedBytes = 228 << 10;

struct Fiber {
  Index thread;
  unsigned rank = 0;
  State state = State::kReady;
  ucontext_t context;
  std::vector<char> stack;
  uint64_t exchanged = 0;
};

inline Fiber* current = nullptr;
inline Index block, extents;
inline std::vector<Fiber> fibers;
inline ucontext_t scheduler;
inline const std::function<void()>* body = nullptr;
alignas(128) inline unsigned char dynamic_shared[kDynamicSharedBytes];

inline void wait(State at) {
  current->state = at;
  swapcontext(&current->context, &scheduler);
}

inline void enter() {
  (*body)();
  current->state = State::kDone;
  swapcontext(&current->context, &scheduler);
}

inline bool release(State waiting) {
  bool any = false;
  for (Fiber& fiber : fibers) {
    if (fiber.state == waiting) {
      fiber.state = State::kReady;
      any = true;
    }
  }
  return any;
}

// Runs every fiber until it waits. Warps go on before the block does: no thread that could still
// arrive at a warp's meeting point is ready by then.
inline void run_block() {
  do {
    for (Fiber& fiber : fibers) {
      if (fiber.state == State::kReady) {
        current = &fiber;
        swapcontext(&scheduler, &fiber.context);
      }
    }
  } while (release(State::kAtWarpBarrier) || release(State::kSpinning) ||
           release(State::kAtBlockBarrier));
}

inline void launch(const int* grid, const int* threads, const std::function<void()>& kernel) {
  body = &kernel;
  extents = {static_cast<unsigned>(threads[0]), static_cast<unsigned>(threads[1]),
             static_cast<unsigned>(threads[2])};
  fibers = std::vector<Fiber>(static_cast<size_t>(threads[0]) * threads[1] * threads[2]);
  for (block.z = 0; block.z < static_cast<unsigned>(grid[2]); ++block.z) {
    for (block.y = 0; block.y < static_cast<unsigned>(grid[1]); ++block.y) {
      // The last one first: what a block writes beyond its own place stays there for all to see.
      for (block.x = grid[0]; block.x-- > 0;) {
        // What no thread of this block wrote must not look like a number.
        std::memset(dynamic_shared, 0xff, sizeof dynamic_shared);
        unsigned rank = 0;
        for (Fiber& fiber : fibers) {
          fiber.rank = rank;
          fiber.thread.x = rank % threads[0];
          fiber.thread.y = rank / threads[0] % threads[1];
          fiber.thread.z = rank / threads[0] / threads[1];
          fiber.state = State::kReady;
          if (fiber.stack.empty()) fiber.stack.resize(kStackBytes);
          getcontext(&fiber.context);
          fiber.context.uc_stack.ss_sp = fiber.stack.data();
          fiber.context.uc_stack.ss_size = kStackBytes;
          fiber.context.uc_link = &scheduler;
          makecontext(&fiber.context, enter, 0);
          ++rank;
        }
        run_block();
      }
    }
  }
}

template <typename T>
T exchange(T value, int source) {
  static_assert(sizeof(T) <= sizeof(uint64_t), "shuffles move up to 8 bytes");
  std::memcpy(&current->exchanged, &value, sizeof(T));
  wait(State::kAtWarpBarrier);
  const unsigned first = current->rank / kWarp * kWarp;
  T result = value;
  if (source >= 0 && first + source < fibers.size()) {
    std::memcpy(&result, &fibers[first + source].exchanged, sizeof(T));
  }
  wait(State::kAtWarpBarrier);
  return result;
}

inline int lane() { return static_cast<int>(current->rank % kWarp); }

}  // namespace cuda_on_host

inline void __syncthreads() { cuda_on_host::wait(cuda_on_host::State::kAtBlockBarrier); }
inline void __syncwarp(unsigned = ~0u) { cuda_on_host::wait(cuda_on_host::State::kAtWarpBarrier); }
inline unsigned __activemask() { return ~0u; }

template <typename T>
T __shfl_sync(unsigned, T value, int source, int width = 32) {
  const int lane = cuda_on_host::lane();
  return cuda_on_host::exchange(value, lane / width * width + source % width);
}

template <typename T>
T __shfl_down_sync(unsigned, T value, unsigned delta, int width = 32) {
  const int lane = cuda_on_host::lane(), source = lane + static_cast<int>(delta);
  return cuda_on_host::exchange(value, source / width == lane / width ? source : lane);
}

template <typename T>
T __shfl_up_sync(unsigned, T value, unsigned delta, int width = 32) {
  const int lane = cuda_on_host::lane(), source = lane - static_cast<int>(delta);
  return cuda_on_host::exchange(value, lane % width >= static_cast<int>(delta) ? source : lane);
}

template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return cuda_on_host::exchange(value, cuda_on_host::lane() ^ mask);
}

// One thread runs at a time.
template <typename T>
T atomicAdd(T* address, std::common_type_t<T> value) {
  const T before = *address;
  *address += value;
  return before;
}

template <typename T, typename Value>
T atomicMax(T* address, Value value) {
  const T before = *address;
  if (static_cast<T>(value) > before) *address = static_cast<T>(value);
  return before;
}

template <typename T, typename Value>
T atomicMin(T* address, Value value) {
  const T before = *address;
  if (static_cast<T>(value) < before) *address = static_cast<T>(value);
  return before;
}

template <typename T, typename Value>
T atomicCAS(T* address, Value expected, Value value) {
  const T before = *address;
  if (before == static_cast<T>(expected)) *address = static_cast<T>(value);
  return before;
}

namespace nvcuda::wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

// A warp's fragment is kept by its first lane; the others only meet it where all must be there.
template <typename Use, int M, int N, int K, typename T, typename Layout = void>
struct fragment {
  float x[16][16];
};

inline bool leads() { return cuda_on_host::lane() == 0; }

template <typename Use, int M, int N, int K, typename T, typename Layout>
void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& f, const T* from, unsigned stride) {
  __syncwarp();
  if (!leads()) return;
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) {
      const bool rows = std::is_same<Layout, row_major>::value;
      f.x[i][j] = static_cast<float>(rows ? from[i * stride + j] : from[j * stride + i]);
    }
  }
}

template <typename Use, int M, int N, int K, typename T, typename Layout>
void fill_fragment(fragment<Use, M, N, K, T, Layout>& f, T value) {
  for (auto& row : f.x) std::fill(std::begin(row), std::end(row), static_cast<float>(value));
}

template <typename D, typename A, typename B, typename C>
void mma_sync(D& d, const A& a, const B& b, const C& c) {
  if (!leads()) return;
  float result[16][16];
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) {
      float sum = c.x[i][j];
      for (int k = 0; k < 16; ++k) sum += a.x[i][k] * b.x[k][j];
      result[i][j] = sum;
    }
  }
  std::memcpy(d.x, result, sizeof result);
}

template <int M, int N, int K, typename T>
void store_matrix_sync(T* to, const fragment<accumulator, M, N, K, T>& f, unsigned stride,
                       layout_t) {
  if (leads()) {
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 16; ++j) to[i * stride + j] = static_cast<T>(f.x[i][j]);
    }
  }
  __syncwarp();
}

}  // namespace nvcuda::wmma
