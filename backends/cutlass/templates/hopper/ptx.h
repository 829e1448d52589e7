/* Hopper's barriers, bulk copies and warp group products, an instruction each.
 *
 * CUTLASS has the same behind its layout algebra, whose templates take a compiler a minute for one
 * kernel; a kernel written with these is compiled in seconds. Semantics: PTX ISA, sections
 * "mbarrier", "cp.async.bulk.tensor" and "wgmma".
 */
#ifndef COLLAGE_HOPPER_PTX_H_
#define COLLAGE_HOPPER_PTX_H_

#include <cuda.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace collage {
namespace hopper {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/* What the first lane has: a value that the compiler knows to be one for the whole warp. */
__device__ __forceinline__ int first_lanes(int value) {
  return __shfl_sync(0xffffffff, value, 0);
}

/* Has a warp group's threads keep so many registers each, which others of its block can take. */
template <int kRegisters>
__device__ __forceinline__ void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/* Waits until a warp group's threads can have so many. */
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/* ---- barriers in shared memory, by address ---- */

__device__ __forceinline__ void init_barrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

/* Makes initialized barriers visible to the copy engine. */
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void expect_bytes(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Waits until the phase with this parity is over. */
__device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

/* ---- turns of two warp groups, whose barriers are counted by threads ---- */

/* Waits until the other group has given the turn. */
__device__ __forceinline__ void await_turn(int group) {
  asm volatile("bar.sync %0, 256;" ::"r"(group + 1) : "memory");
}

__device__ __forceinline__ void give_turn(int group) {
  asm volatile("bar.arrive %0, 256;" ::"r"(group + 1) : "memory");
}

/* ---- bulk copies of boxes of a tensor ---- */

__device__ __forceinline__ void prefetch(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/* To shared memory, whose barrier is told of the bytes. */
__device__ __forceinline__ void load(uint32_t to, const CUtensorMap& map, uint32_t barrier, int x,
                                     int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z)
      : "memory");
}

__device__ __forceinline__ void load(uint32_t to, const CUtensorMap& map, uint32_t barrier, int x,
                                     int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

/* Pixels of an NHWC tensor from (n, h, w) on, as a filter's place (right, below) sees them. */
__device__ __forceinline__ void load_pixels(uint32_t to, const CUtensorMap& map, uint32_t barrier,
                                            int c, int w, int h, int n, uint16_t right,
                                            uint16_t below) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(c), "r"(w), "r"(h), "r"(n), "h"(right), "h"(below)
      : "memory");
}

/* ---- products of a warp group ---- */

/* Where an operand lies: rows of 128 bytes, swizzled as the copy engine leaves them.
 *
 * kDeep: rows run along k, eight of them are a group, groups follow each other. Otherwise rows run
 * along m or n and hold 64 of it, eight of them are eight steps of k, and `apart` bytes lie between
 * one 64 and the next.
 */
template <bool kDeep>
__device__ __forceinline__ uint64_t operand(uint32_t address, uint32_t apart) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kGroup = uint64_t{1024 >> 4} << 32;
  const uint64_t leading = kDeep ? 1 : (apart >> 4) & 0x3fff;
  return kSwizzle128 | kGroup | leading << 16 | ((address >> 4) & 0x3fff);
}

__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until at most kPending groups of products are under way. */
template <int kPending>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/* Keeps the compiler from using sums before they were waited for. */
template <int kNumbers>
__device__ __forceinline__ void settle(float (&sums)[kNumbers]) {
#pragma unroll
  for (int i = 0; i < kNumbers; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

/* 2^x in one instruction, within 2 units in the last place; 0 where it would be denormal. */
__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace hopper
}  // namespace collage

#endif /* COLLAGE_HOPPER_PTX_H_ */
