/* The output operator of CUTLASS 2.x kernels with a broadcast epilogue (gemm and conv2d). */
#ifndef COLLAGE_EPILOGUE_SM80_H_
#define COLLAGE_EPILOGUE_SM80_H_

#include "collage_activation.h"
#include "cutlass/array.h"
#include "cutlass/numeric_conversion.h"

namespace collage {

/* Follows the concept of EpilogueWithBroadcast with one source: the broadcast vector is the bias
 * (zeros where its pointer is null), the source is the residual.
 *
 * Element: of result, residual and bias. kSource: whether the residual is loaded.
 */
template <class Element, int kCount_, bool kHeavy, bool kSource>
class BroadcastOutput {
 public:
  using ElementOutput = Element;
  using ElementC = Element;
  using ElementZ = Element;
  using ElementT = Element;
  using ElementVector = Element;
  using ElementAccumulator = float;
  using ElementCompute = float;
  static int const kElementsPerAccess = kCount_;
  static int const kCount = kCount_;
  using FragmentAccumulator = cutlass::Array<float, kCount>;
  using FragmentCompute = cutlass::Array<float, kCount>;
  using FragmentC = cutlass::Array<Element, kCount>;
  using FragmentOutput = FragmentC;
  using FragmentZ = FragmentC;
  using FragmentT = FragmentC;

  static bool const kIsSingleSource = true;
  static bool const kIsHeavy = kHeavy;
  static bool const kStoreZ = true;
  static bool const kStoreT = false;
  static bool const kExact = cutlass::sizeof_bits<Element>::value == 32;

  using Params = EpilogueArguments;

  CUTLASS_HOST_DEVICE
  explicit BroadcastOutput(Params const& params) : params_(params) {}

  CUTLASS_HOST_DEVICE
  bool is_source_needed() const { return kSource; }

  /* Serial split-K is not used: partial products are summed before any of this. */
  CUTLASS_HOST_DEVICE
  void set_k_partition(int, int) {}

  CUTLASS_DEVICE
  void operator()(FragmentZ& z, FragmentT&, FragmentAccumulator const& accumulator,
                  FragmentC const& source, FragmentCompute const& bias) const {
    FragmentCompute x = accumulator;
    before_residual<kHeavy, kExact, kCount>(params_, x, bias);
    FragmentCompute s = cutlass::NumericArrayConverter<float, Element, kCount>()(source);
    residual<kHeavy, kExact, kCount>(params_, x, s);
    z = cutlass::NumericArrayConverter<Element, float, kCount>()(x);
  }

  CUTLASS_DEVICE
  void operator()(FragmentZ& z, FragmentT&, FragmentAccumulator const& accumulator,
                  FragmentCompute const& bias) const {
    FragmentCompute x = accumulator;
    before_residual<kHeavy, kExact, kCount>(params_, x, bias);
    z = cutlass::NumericArrayConverter<Element, float, kCount>()(x);
  }

 private:
  Params params_;
};

}  // namespace collage

#endif /* COLLAGE_EPILOGUE_SM80_H_ */
