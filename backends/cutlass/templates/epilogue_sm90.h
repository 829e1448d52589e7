/* What follows a product or a convolution in Hopper's kernels, as a tree for their collective
 * epilogues. */
#ifndef COLLAGE_EPILOGUE_SM90_H_
#define COLLAGE_EPILOGUE_SM90_H_

#include "collage_activation.h"
#include "cutlass/epilogue/fusion/sm90_callbacks_tma_warpspecialized.hpp"

namespace collage {

/* The epilogue as one function of accumulator, bias and residual, for Sm90Compute. */
template <class T, bool kHeavy>
struct FusedEpilogue {
  using Arguments = EpilogueArguments;
};

template <int kCount, bool kHeavy>
struct FusedEpilogue<cutlass::Array<float, kCount>, kHeavy> {
  using Arguments = EpilogueArguments;
  using Vector = cutlass::Array<float, kCount>;

  CUTLASS_DEVICE
  Vector operator()(Vector x, Vector const& bias, Arguments const& args) const {
    before_residual<kHeavy, false, kCount>(args, x, bias);
    return x;
  }

  CUTLASS_DEVICE
  Vector operator()(Vector x, Vector const& bias, Vector const& source,
                    Arguments const& args) const {
    before_residual<kHeavy, false, kCount>(args, x, bias);
    residual<kHeavy, false, kCount>(args, x, source);
    return x;
  }
};

template <class Element, class TileShape, bool kHeavy, bool kSource>
struct EpilogueSm90 {
  template <class T>
  struct Function : FusedEpilogue<T, kHeavy> {};

  using Compute =
      cutlass::epilogue::fusion::Sm90Compute<Function, Element, float,
                                             cutlass::FloatRoundStyle::round_to_nearest>;
  using Bias = cutlass::epilogue::fusion::Sm90RowBroadcast<0, TileShape, Element, float>;
  using Accumulator = cutlass::epilogue::fusion::Sm90AccFetch;
  using Source = cutlass::epilogue::fusion::Sm90SrcFetch<Element>;
  using WithSource = cutlass::epilogue::fusion::Sm90EVT<Compute, Accumulator, Bias, Source>;
  using WithoutSource = cutlass::epilogue::fusion::Sm90EVT<Compute, Accumulator, Bias>;
  using Fusion = cute::conditional_t<kSource, WithSource, WithoutSource>;

  /* In the order of the tree's children, then its root. */
  static typename Fusion::Arguments arguments(const void* bias, const EpilogueArguments& epilogue) {
    typename Bias::Arguments row{};
    row.ptr_row = static_cast<const Element*>(bias);
    if constexpr (kSource) {
      return {{}, row, {}, epilogue};
    } else {
      return {{}, row, epilogue};
    }
  }
};

}  // namespace collage

#endif /* COLLAGE_EPILOGUE_SM90_H_ */
