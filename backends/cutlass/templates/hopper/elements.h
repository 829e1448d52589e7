/* Elements of 16 bits: single ones, and two of them in a register. */
#ifndef COLLAGE_HOPPER_ELEMENTS_H_
#define COLLAGE_HOPPER_ELEMENTS_H_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>
#include <string.h>

namespace collage {
namespace hopper {

template <class Element>
struct PairOf;
template <>
struct PairOf<__half> {
  using type = __half2;
};
template <>
struct PairOf<__nv_bfloat16> {
  using type = __nv_bfloat162;
};

__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

__device__ __forceinline__ __half2 pair(float x, float y, __half) {
  return __floats2half2_rn(x, y);
}
__device__ __forceinline__ __nv_bfloat162 pair(float x, float y, __nv_bfloat16) {
  return __floats2bfloat162_rn(x, y);
}

template <class Element>
__device__ __forceinline__ uint32_t packed(float x, float y) {
  const auto two = pair(x, y, Element());
  uint32_t bits;
  memcpy(&bits, &two, 4);
  return bits;
}

template <class Element>
__device__ __forceinline__ void unpack(uint32_t bits, float* to) {
  typename PairOf<Element>::type two;
  memcpy(&two, &bits, 4);
  to[0] = to_float(two.x);
  to[1] = to_float(two.y);
}

template <class Element>
__device__ __forceinline__ Element element(uint32_t bits, int place) {
  typename PairOf<Element>::type two;
  memcpy(&two, &bits, 4);
  return place == 0 ? two.x : two.y;
}

}  // namespace hopper
}  // namespace collage

#endif /* COLLAGE_HOPPER_ELEMENTS_H_ */
