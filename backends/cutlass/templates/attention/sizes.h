/* Places in the sizes of every attention unit. Strides are in elements: of a row (m), a head (h) and
 * a batch (b); offsets are those of q, k and v in their tensor. */
#ifndef COLLAGE_ATTENTION_SIZES_H_
#define COLLAGE_ATTENTION_SIZES_H_

namespace collage {

enum AttentionSize {
  kBatch, kHeads, kQueries, kKeys, kDim, kDimValue, kMask,
  kQm, kQh, kQb, kKm, kKh, kKb, kVm, kVh, kVb, kBiasM, kBiasH, kBiasB,
  kQOffset, kKOffset, kVOffset,
};

}  // namespace collage

#endif /* COLLAGE_ATTENTION_SIZES_H_ */
