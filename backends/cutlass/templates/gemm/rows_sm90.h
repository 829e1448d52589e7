/* Hopper's GEMM for results that TMA cannot store: EpilogueSchedule is StoreRows, the rest of a
 * Config as in sm90.h. */
#ifndef COLLAGE_GEMM_ROWS_SM90_H_
#define COLLAGE_GEMM_ROWS_SM90_H_

#include "gemm/epilogue_rows.h"
#include "gemm/sm90.h"

namespace collage {

struct StoreRows {};

template <class T, bool kHeavy>
constexpr bool is_heavy(const FusedEpilogue<T, kHeavy>*) {
  return kHeavy;
}

/* The epilogue that does what a tree of EpilogueSm90 says. */
template <class Element, class ElementC, class Tree>
struct RowsEpilogueOf;

template <class Element, class ElementC, template <class> class Function, class... Leaves>
struct RowsEpilogueOf<
    Element, ElementC,
    cutlass::epilogue::fusion::Sm90EVT<
        cutlass::epilogue::fusion::Sm90Compute<Function, Element, float,
                                               cutlass::FloatRoundStyle::round_to_nearest>,
        Leaves...>> {
  static constexpr bool kHeavy =
      is_heavy(static_cast<Function<cutlass::Array<float, 1>>*>(nullptr));
  using type = RowsEpilogueOperator<Element, kHeavy, !cute::is_void_v<ElementC>>;
};

}  // namespace collage

template <class TileShape, class ClusterShape, class ElementC, class LayoutC, int kAlignmentC,
          class Element, class LayoutD, int kAlignmentD, class Tree>
struct cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, ElementC, LayoutC, kAlignmentC,
    Element, LayoutD, kAlignmentD, collage::StoreRows, Tree> {
  using CollectiveOp = cutlass::epilogue::collective::detail::Sm90TmaWarpSpecializedAdapter<
      typename collage::RowsEpilogueOf<Element, ElementC, Tree>::type>;
};

#endif /* COLLAGE_GEMM_ROWS_SM90_H_ */
