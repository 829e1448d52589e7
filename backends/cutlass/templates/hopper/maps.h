/* Descriptions of tensors for the copy engine. */
#ifndef COLLAGE_HOPPER_MAPS_H_
#define COLLAGE_HOPPER_MAPS_H_

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace collage {
namespace hopper {

template <class Element>
constexpr CUtensorMapDataType kDataType = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
template <>
constexpr CUtensorMapDataType kDataType<__nv_bfloat16> = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;

/* A function of the driver, which nothing is linked against; NULL where it has none. */
template <class Function>
Function* driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
  const bool is_found = error == cudaSuccess && result == cudaDriverEntryPointSuccess;
  return is_found ? reinterpret_cast<Function*>(found) : nullptr;
}

/* A tensor whose innermost axis is dense, in boxes of `box_y` rows (and as many of them as `box_z`
 * along the third axis) of 64 elements. `extents`: innermost first. `strides`: of the others, in
 * elements; multiples of 8. */
template <class Element, int kAxes>
cudaError_t describe(CUtensorMap* map, const void* data, const int64_t (&extents)[kAxes],
                     const int64_t (&strides)[kAxes - 1], int box_y, int box_z = 1) {
  static auto* encode = driver_function<decltype(cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  if (encode == nullptr) return cudaErrorNotSupported;
  cuuint64_t sizes[kAxes], bytes[kAxes - 1];
  for (int i = 0; i < kAxes; ++i) sizes[i] = static_cast<cuuint64_t>(extents[i]);
  for (int i = 0; i < kAxes - 1; ++i) bytes[i] = static_cast<cuuint64_t>(strides[i] * 2);
  const cuuint32_t box[4] = {64, static_cast<cuuint32_t>(box_y), static_cast<cuuint32_t>(box_z), 1};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  const CUresult result =
      encode(map, kDataType<Element>, kAxes, const_cast<void*>(data), sizes, bytes, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

/* NHWC pixels as a filter sees them; 64 channels of `pixels` pixels at a time. */
struct Pixels {
  int n, h, w, c;
  int top, left;     /* zeros before the first row and column */
  int below, right;  /* zeros after the last, less the filter's reach */
  int stride_h, stride_w;
};

template <class Element>
cudaError_t describe(CUtensorMap* map, const void* data, const Pixels& p, int pixels) {
  static auto* encode =
      driver_function<decltype(cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
  if (encode == nullptr) return cudaErrorNotSupported;
  const cuuint64_t c = p.c, w = p.w, h = p.h, n = p.n;
  const cuuint64_t sizes[4] = {c, w, h, n}, bytes[3] = {2 * c, 2 * c * w, 2 * c * w * h};
  const int lower[2] = {-p.left, -p.top}, upper[2] = {p.right, p.below};
  const cuuint32_t steps[4] = {1, static_cast<cuuint32_t>(p.stride_w),
                               static_cast<cuuint32_t>(p.stride_h), 1};
  const CUresult result =
      encode(map, kDataType<Element>, 4, const_cast<void*>(data), sizes, bytes, lower, upper, 64,
             static_cast<cuuint32_t>(pixels), steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace hopper
}  // namespace collage

#endif /* COLLAGE_HOPPER_MAPS_H_ */
