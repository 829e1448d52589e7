/* How operands of products lie in shared memory: as the copy engine leaves them, in rows of 128
 * bytes. hopper/ptx.h tells the two ways. */
#ifndef COLLAGE_HOPPER_OPERANDS_H_
#define COLLAGE_HOPPER_OPERANDS_H_

namespace collage {
namespace hopper {

/* Bytes of 64 elements, which is what the widest swizzle spans. */
constexpr int kRow = 128;
/* What one warp group multiplies at once. */
constexpr int kRowsOfGroup = 64;

/* Offset of the step-th 16 along k within an operand of so many rows, or columns. */
template <bool kDeep>
__device__ __forceinline__ constexpr int at_depth(int rows, int step) {
  return kDeep ? step / 4 * rows * kRow + step % 4 * 32 : step * 16 * kRow;
}

}  // namespace hopper
}  // namespace collage

#endif /* COLLAGE_HOPPER_OPERANDS_H_ */
