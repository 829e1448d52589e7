/* Elements of every type: what they are computed in, and how threads hand them to each other. */
#ifndef COLLAGE_ROWS_NUMBERS
#define COLLAGE_ROWS_NUMBERS

namespace collage {

template <class T>
struct WideOf {
  using type = int;
};
#ifdef __CUDA_FP16_TYPES_EXIST__
template <>
struct WideOf<half> {
  using type = float;
};
#endif
template <>
struct WideOf<float> {
  using type = float;
};
template <>
struct WideOf<double> {
  using type = double;
};
template <>
struct WideOf<long> {
  using type = long long;
};
template <>
struct WideOf<long long> {
  using type = long long;
};
template <>
struct WideOf<unsigned> {
  using type = long long;
};
#ifdef __CUDA_BF16_TYPES_EXIST__
template <>
struct WideOf<__nv_bfloat16> {
  using type = float;
};
#endif
template <class T>
using Wide = typename WideOf<T>::type;

template <class T>
__device__ __forceinline__ Wide<T> widened(T x) {
  return static_cast<Wide<T>>(x);
}

/* That it differs from itself a compiler may take for false. */
__device__ __forceinline__ bool is_none(float x) { return isnan(x); }
__device__ __forceinline__ bool is_none(double x) { return isnan(x); }
__device__ __forceinline__ bool is_none(int) { return false; }
__device__ __forceinline__ bool is_none(long long) { return false; }

/* Another lane's value, of words that shuffles move one by one. */
template <class S>
__device__ __forceinline__ S of_lane(S mine, int lane) {
  constexpr int kWords = (sizeof(S) + 3) / 4;
  union {
    S value;
    unsigned words[kWords];
  } given, found;
  given.value = mine;
#pragma unroll
  for (int i = 0; i < kWords; ++i) found.words[i] = __shfl_sync(0xffffffffu, given.words[i], lane);
  return found.value;
}

/* Where a line of a tensor begins: lines go along an axis, and are numbered as the rest of the
   axes has them. */
__device__ __forceinline__ long long line_begin(long long line, long long length, long long step) {
  return step == 1 ? line * length : line / step * length * step + line % step;
}

}  // namespace collage
#endif
