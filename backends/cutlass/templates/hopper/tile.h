/* Hopper's kernel for products and convolutions: thread blocks compute tiles of the result.
 *
 * One thread has the copy engine fill stages of shared memory; each warp group multiplies 64 rows
 * by all of the tile's columns, then finishes and stores them, while the next tile's operands
 * arrive. Two blocks share a multiprocessor where tiles are small, so that one stores while the
 * other multiplies. Clusters of two blocks that share the right operand were tried: as fast or
 * slower for each of 21 products (H100).
 *
 * Config:
 *   Element, Multiply (multiply.cu.jinja), kHeavy (costly activations), kSource (residual)
 *   kRows, kColumns, kDepth: of the tile; multiples of 64
 *   kDeepA, kDeepB: whether operands are contiguous along k
 *   Operands: what is loaded. `prefetch()`; `begin(row)` gives the first step's place along the
 *             reduced axis, of which `next(place)` makes the next; `load_a(to, barrier, place, row,
 *             batch)` and `load_b(to, barrier, place, column, batch)` load a step's part.
 */
#ifndef COLLAGE_HOPPER_TILE_H_
#define COLLAGE_HOPPER_TILE_H_

#include <stdint.h>

#include "collage_activation.h"
#include "collage_cutlass.h"
#include "hopper/operands.h"
#include "hopper/ptx.h"
#include "hopper/rows.h"
#include "hopper/turns.h"

namespace collage {
namespace hopper {

constexpr int kMaxStages = 8;
/* Of a multiprocessor, a kibibyte of which goes to each block unasked. */
constexpr int kSharedBytes = 228 << 10;

template <class Operands>
struct Parameters {
  Operands operands;
  Result result;
  Tiles tiles;
  int steps, stages;
};

template <class Config>
struct Tile {
  using Operands = typename Config::Operands;

  static constexpr int kGroups = Config::kRows / kRowsOfGroup;
  static constexpr int kThreads = 128 * kGroups + 32;
  static constexpr int kBytesA = Config::kRows * Config::kDepth * 2;
  static constexpr int kBytesB = Config::kColumns * Config::kDepth * 2;
  static constexpr int kStageBytes = kBytesA + kBytesB;
  /* Blocks that share a multiprocessor, if there are so many. */
  static constexpr int kBeside = kStageBytes <= 32 << 10 ? 2 : 1;
  /* From one 64 of m or n to the next, where rows run along them. */
  static constexpr int kApart = Config::kDepth * kRow;
  static constexpr int kOwnA = (Config::kDeepA ? kRowsOfGroup : Config::kDepth) * kRow;

  /* Through which each warp passes its rows of the result. */
  static constexpr int kAllPassBytes = kGroups * 4 * kPassBytes;
  static constexpr int kBarrierBytes = 2 * 8 * kMaxStages;

  static constexpr int shared_bytes(int stages) {
    return stages * kStageBytes + kAllPassBytes + kBarrierBytes;
  }

  /* How many there is room for where so many blocks share a multiprocessor. */
  static constexpr int stages_of(int blocks) {
    const int bytes = kSharedBytes / blocks - 1024 - kAllPassBytes - kBarrierBytes;
    const int stages = bytes / kStageBytes;
    return stages < kMaxStages ? stages : kMaxStages;
  }

  __device__ static void copy(const Parameters<Operands>& p, uint32_t memory, uint32_t full,
                              uint32_t empty) {
    p.operands.prefetch();
    int stage = 0, parity = 1;
    for (Turn<Config> turn(p.tiles); !turn.is_over(); turn.next()) {
      const Corner corner = turn.corner();
      auto place = p.operands.begin(corner.row);
      for (int step = 0; step < p.steps; ++step) {
        wait(empty + 8 * stage, parity);
        const uint32_t barrier = full + 8 * stage;
        const uint32_t to = memory + stage * kStageBytes;
        expect_bytes(barrier, kStageBytes);
        p.operands.load_a(to, barrier, place, corner.row, corner.batch);
        p.operands.load_b(to + kBytesA, barrier, place, corner.column, corner.batch);
        p.operands.next(place);
        if (++stage == p.stages) {
          stage = 0;
          parity ^= 1;
        }
      }
    }
  }

  __device__ static __forceinline__ void release(uint32_t empty) {
    if (threadIdx.x % 128 == 0) arrive(empty);
  }

  __device__ static void compute(const Parameters<Operands>& p, unsigned char* pass,
                                 uint32_t memory, uint32_t full, uint32_t empty) {
    const int warp = first_lanes(threadIdx.x / 32), group = warp / 4;
    int stage = 0, parity = 0;
    for (Turn<Config> turn(p.tiles); !turn.is_over(); turn.next()) {
      const Corner corner = turn.corner();
      Rows<Config> rows(p.result, pass + warp * kPassBytes, corner.row + warp * 16, corner.column,
                        corner.batch);
      rows.announce();
      float sums[Config::kColumns / 2];
      int before = 0;
      for (int step = 0; step < p.steps; ++step) {
        wait(full + 8 * stage, parity);
        const uint32_t a = memory + stage * kStageBytes + group * kOwnA;
        const uint32_t b = memory + stage * kStageBytes + kBytesA;
        begin_products();
#pragma unroll
        for (int deep = 0; deep < Config::kDepth / 16; ++deep) {
          const int at_a = at_depth<Config::kDeepA>(Config::kRows, deep);
          const int at_b = at_depth<Config::kDeepB>(Config::kColumns, deep);
          Config::Multiply::run(sums, operand<Config::kDeepA>(a + at_a, kApart),
                                operand<Config::kDeepB>(b + at_b, kApart), step + deep);
        }
        commit_products();
        wait_for_products<1>();
        if (step > 0) release(empty + 8 * before);
        before = stage;
        if (++stage == p.stages) {
          stage = 0;
          parity ^= 1;
        }
      }
      rows.fetch_first();
      wait_for_products<0>();
      release(empty + 8 * before);
      rows.finish(sums);
    }
  }
};

/* Grid: at most as many blocks as run at once. */
template <class Config>
__global__ void __launch_bounds__(Tile<Config>::kThreads, Tile<Config>::kBeside)
    run_tiles(const __grid_constant__ Parameters<typename Config::Operands> p) {
  using T = Tile<Config>;
  /* The swizzle counts from multiples of 1024 bytes. */
  extern __shared__ __align__(1024) unsigned char shared[];
  unsigned char* pass = shared + p.stages * T::kStageBytes;
  const uint32_t memory = shared_address(shared);
  const uint32_t full = shared_address(pass + T::kAllPassBytes), empty = full + 8 * kMaxStages;
  if (threadIdx.x == 0) {
    if (memory % 1024 != 0) __trap();
    for (int stage = 0; stage < p.stages; ++stage) {
      init_barrier(full + 8 * stage, 1);
      init_barrier(empty + 8 * stage, T::kGroups);
    }
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x >= 128 * T::kGroups) {
    if (threadIdx.x == 128 * T::kGroups) T::copy(p, memory, full, empty);
    __syncwarp();
  } else {
    T::compute(p, pass, memory, full, empty);
  }
}

/* Launches it with as many stages as let blocks share a multiprocessor, or, where there are few
 * blocks, as one multiprocessor has room for. */
template <class Config>
int launch_tiles(Parameters<typename Config::Operands>& p, int64_t batch,
                const collage_cutlass_call* call) {
  using T = Tile<Config>;
  constexpr int kAlone = T::stages_of(1), kBeside = T::stages_of(T::kBeside);
  static_assert(kAlone >= 2, "the tile does not fit shared memory twice");
  static PerDevice<int> devices;
  int multiprocessors = 0;
  const cudaError_t error = devices.get(call->device, &multiprocessors, [](int device, int* n) {
    const cudaError_t allowed = allow_shared_memory(run_tiles<Config>, T::shared_bytes(kAlone));
    if (allowed != cudaSuccess) return allowed;
    return cudaDeviceGetAttribute(n, cudaDevAttrMultiProcessorCount, device);
  });
  if (error != cudaSuccess) return static_cast<int>(error);

  const int64_t rows = (p.result.rows - 1) / Config::kRows + 1;
  const int64_t columns = (p.result.columns - 1) / Config::kColumns + 1;
  const int64_t blocks = rows * columns * batch;
  if (blocks > INT32_MAX) return static_cast<int>(cudaErrorInvalidValue);
  p.tiles = Tiles(static_cast<int>(rows), static_cast<int>(columns), static_cast<int>(batch));
  const bool is_full = blocks > multiprocessors;
  const int64_t most = multiprocessors * (is_full ? T::kBeside : 1);
  p.stages = is_full ? kBeside : kAlone;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks < most ? blocks : most));
  config.blockDim = dim3(T::kThreads);
  config.dynamicSmemBytes = T::shared_bytes(p.stages);
  config.stream = call->stream;
  return static_cast<int>(cudaLaunchKernelEx(&config, run_tiles<Config>, p));
}

}  // namespace hopper
}  // namespace collage

#endif /* COLLAGE_HOPPER_TILE_H_ */
