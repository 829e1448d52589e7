// What templates/hopper/ptx.h and maps.h ask of Hopper, on the CPU: barriers that count arrivals and
// bytes, copies of boxes into swizzled shared memory, products of a warp group.
#pragma once
#define COLLAGE_HOPPER_PTX_H_
#define COLLAGE_HOPPER_MAPS_H_

#include "cuda_on_host.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <map>

#include "hopper/elements.h"

#define __expf expf
#define __fdividef(a, b) ((a) / (b))
#define __grid_constant__
#define __align__(n)
#define __shared__
#define __trap abort
#define cudaFuncSetAttribute(...) cudaSuccess
#define cudaDeviceGetAttribute(to, ...) (*(to) = hopper_on_host::kMultiprocessors, cudaSuccess)
#define cudaLaunchKernelEx hopper_on_host::launch

inline dim3 gridDim;

namespace hopper_on_host {

// Few, so that each block has several tiles.
constexpr int kMultiprocessors = 2;
struct Barrier {
  int arrivals = 0, pending = 0, phase = 0;
  int64_t bytes = 0;
};
inline std::map<uint32_t, Barrier> barriers;

inline void settle(Barrier& barrier) {
  if (barrier.pending == 0 && barrier.bytes == 0) {
    ++barrier.phase;
    barrier.pending = barrier.arrivals;
  }
}

// A tensor as the copy engine knows it: extents and strides (elements), innermost first.
struct Map {
  const uint16_t* data;
  int32_t extents[4], box_y, box_z;
  int64_t strides[3];
  // Of pixels; zero elsewhere.
  int32_t pixels, lower_h, lower_w, upper_h, upper_w, stride_h, stride_w;
};
static_assert(sizeof(Map) <= sizeof(CUtensorMap));

inline Map map_of(const CUtensorMap& from) {
  Map map;
  std::memcpy(&map, &from, sizeof map);
  return map;
}

template <class Parameters>
cudaError_t launch(const cudaLaunchConfig_t* config, void (*kernel)(Parameters),
                   const Parameters& parameters) {
  gridDim = config->gridDim;
  const int blocks[] = {int(gridDim.x), int(gridDim.y), int(gridDim.z)};
  const int threads[] = {int(config->blockDim.x), 1, 1};
  cuda_on_host::launch(blocks, threads, [&] { kernel(parameters); });
  return cudaSuccess;
}

}  // namespace hopper_on_host

namespace collage {
namespace hopper {

alignas(1024) inline unsigned char shared[228 << 10];

inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(pointer) - shared);
}

// The element of 16 bits at an address, where the swizzle has it.
inline uint16_t& swizzled(uint32_t address) {
  return *reinterpret_cast<uint16_t*>(shared + (address ^ (address >> 7 & 7) << 4));
}

inline int first_lanes(int value) { return value; }
inline void await_turn(int) {}
inline void give_turn(int) {}
template <int kRegisters>
void keep_registers() {}
template <int kRegisters>
void take_registers() {}
inline void init_barrier(uint32_t barrier, int arrivals) {
  hopper_on_host::barriers[barrier] = {arrivals, arrivals, 0, 0};
}
inline void publish_barriers() {}
inline void arrive(uint32_t barrier) {
  auto& own = hopper_on_host::barriers.at(barrier);
  --own.pending;
  hopper_on_host::settle(own);
}
inline void expect_bytes(uint32_t barrier, uint32_t bytes) {
  hopper_on_host::barriers.at(barrier).bytes += bytes;
  arrive(barrier);
}
inline void wait(uint32_t barrier, uint32_t parity) {
  while ((hopper_on_host::barriers.at(barrier).phase & 1) == int(parity)) {
    cuda_on_host::wait(cuda_on_host::State::kSpinning);
  }
}
inline void prefetch(const CUtensorMap&) {}
inline void begin_products() {}
inline void commit_products() {}
template <int kPending>
void wait_for_products() {}
template <int kNumbers>
void settle(float (&)[kNumbers]) {}
inline float power_of_two(float x) { return std::exp2(x); }

inline void put(uint32_t to, uint32_t barrier, uint16_t value) {
  swizzled(to) = value;
  hopper_on_host::barriers.at(barrier).bytes -= 2;
}

inline void load(uint32_t to, const CUtensorMap& of, uint32_t barrier, int x, int y, int z,
                 int w = 0) {
  const auto map = hopper_on_host::map_of(of);
  for (int row = 0; row < map.box_y * map.box_z; ++row) {
    const int64_t at_y = y + row % map.box_y, at_z = z + row / map.box_y;
    for (int i = 0; i < 64; ++i) {
      const bool inside = x + i < map.extents[0] && at_y < map.extents[1] &&
                          at_z < map.extents[2] && w < map.extents[3];
      const int64_t place =
          x + i + at_y * map.strides[0] + at_z * map.strides[1] + w * map.strides[2];
      put(to + row * 128 + i * 2, barrier, inside ? map.data[place] : 0);
    }
  }
  hopper_on_host::settle(hopper_on_host::barriers.at(barrier));
}

inline void load_pixels(uint32_t to, const CUtensorMap& of, uint32_t barrier, int c, int w, int h,
                        int n, uint16_t right, uint16_t below) {
  const auto map = hopper_on_host::map_of(of);
  for (int pixel = 0; pixel < map.pixels; ++pixel) {
    const int64_t row = h + below, column = w + right;
    const bool inside = n < map.extents[3] && row >= 0 && row < map.extents[2] && column >= 0 &&
                        column < map.extents[1];
    for (int i = 0; i < 64; ++i) {
      const int64_t place =
          c + i + column * map.strides[0] + row * map.strides[1] + n * map.strides[2];
      const bool is_there = inside && c + i < map.extents[0];
      put(to + pixel * 128 + i * 2, barrier, is_there ? map.data[place] : 0);
    }
    w += map.stride_w;
    if (w <= map.extents[1] - 1 + map.upper_w) continue;
    w = map.lower_w;
    h += map.stride_h;
    if (h <= map.extents[2] - 1 + map.upper_h) continue;
    h = map.lower_h;
    ++n;
  }
  hopper_on_host::settle(hopper_on_host::barriers.at(barrier));
}

template <bool kDeep>
uint64_t operand(uint32_t address, uint32_t apart) {
  return uint64_t{apart} << 32 | address;
}

// The element of row (or column) `at` and step `k`, by what operand() gave.
template <class Element, bool kDeep>
float element_of(uint64_t operand, int at, int k) {
  const uint32_t address = uint32_t(operand), apart = operand >> 32;
  const uint32_t place = kDeep ? address + at * 128 + k * 2
                               : address + at / 64 * apart + k * 128 + at % 64 * 2;
  Element value;
  std::memcpy(&value, &swizzled(place), 2);
  return static_cast<float>(value);
}

// A unit's Multiply.
template <class Element, int kColumns, bool kDeepA, bool kDeepB>
struct HostMultiply {
  static void run(float (&d)[kColumns / 2], uint64_t a, uint64_t b, int add) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    for (int i = 0; i < kColumns / 2; ++i) {
      const int row = 16 * warp + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      float sum = add ? d[i] : 0.0f;
      for (int k = 0; k < 16; ++k) {
        sum += element_of<Element, kDeepA>(a, row, k) * element_of<Element, kDeepB>(b, column, k);
      }
      d[i] = sum;
    }
  }
};

// The same with the left operand in registers: a thread has pairs of two rows, at k and at k + 8.
template <class Element, int kColumns>
struct HostKeptMultiply {
  static void run(float (&d)[kColumns / 2], const uint32_t* a, uint64_t b, int add) {
    const int lane = threadIdx.x % 32;
    float rows[2][16];
    for (int i = 0; i < 4; ++i) {
      // Four neighbours share a row.
      for (int other = 0; other < 4; ++other) {
        const uint32_t bits = __shfl_sync(~0u, a[i], lane / 4 * 4 + other);
        unpack<Element>(bits, rows[i % 2] + i / 2 * 8 + other * 2);
      }
    }
    for (int i = 0; i < kColumns / 2; ++i) {
      const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      float sum = add ? d[i] : 0.0f;
      for (int k = 0; k < 16; ++k) {
        sum += rows[i / 2 % 2][k] * element_of<Element, false>(b, column, k);
      }
      d[i] = sum;
    }
  }
};

template <class Element, int kAxes>
cudaError_t describe(CUtensorMap* to, const void* data, const int64_t (&extents)[kAxes],
                     const int64_t (&strides)[kAxes - 1], int box_y, int box_z = 1) {
  constexpr bool kFour = kAxes == 4;
  hopper_on_host::Map map = {
      static_cast<const uint16_t*>(data),
      {int(extents[0]), int(extents[1]), int(extents[2]), kFour ? int(extents[kAxes - 1]) : 1},
      box_y,
      box_z,
      {strides[0], strides[1], kFour ? strides[kAxes - 2] : 0}};
  std::memcpy(to, &map, sizeof map);
  return cudaSuccess;
}

struct Pixels {
  int n, h, w, c;
  int top, left, below, right;
  int stride_h, stride_w;
};

template <class Element>
cudaError_t describe(CUtensorMap* to, const void* data, const Pixels& p, int pixels) {
  const int64_t c = p.c;
  hopper_on_host::Map map = {static_cast<const uint16_t*>(data),
                             {p.c, p.w, p.h, p.n},
                             1,
                             1,
                             {c, c * p.w, c * p.w * p.h},
                             pixels,
                             -p.top,
                             -p.left,
                             p.below,
                             p.right,
                             p.stride_h,
                             p.stride_w};
  std::memcpy(to, &map, sizeof map);
  return cudaSuccess;
}

}  // namespace hopper
}  // namespace collage
