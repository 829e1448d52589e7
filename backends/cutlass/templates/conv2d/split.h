/* Convolutions whose input channels are cut into slices: partial sums in float32 into the
 * workspace, then one kernel that sums them and does what follows. Config: see sm80.h. */
#ifndef COLLAGE_CONV2D_SPLIT_H_
#define COLLAGE_CONV2D_SPLIT_H_

#include "conv2d/sm80.h"

/* For gemm_reduce. */
#include "gemm/sm80.h"

namespace collage {

template <class Config>
struct Conv2dSplit {
  using Element = typename Config::Element;
  static constexpr int kCount = Config::kAccessK < 4 ? Config::kAccessK : 4;
  using Output =
      cutlass::epilogue::thread::LinearCombination<float, kCount, float, float,
                                                   cutlass::epilogue::thread::ScaleType::Nothing>;
  using Kernel = typename cutlass::conv::kernel::DefaultConv2dFprop<
      Element, ConvLayout, Element, ConvLayout, float, ConvLayout, float,
      cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80, typename Config::ThreadblockShape,
      typename Config::WarpShape, typename Config::InstructionShape, Output,
      cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<4>, Config::kStages,
      typename Config::Operator, Config::kIterator, cutlass::conv::StrideSupport::kUnity,
      Config::kAccessC, Config::kAccessC>::Kernel;

  static int run(const collage_cutlass_call* call) {
    const Conv2dProblem p(call->sizes);
    const Conv2dOperands operands(p, call->inputs);
    const auto partial = dense<float>(call->workspace, p.n, p.p, p.q, p.k);
    const typename Kernel::Arguments arguments(
        cutlass_problem(p, p.slices), dense<Element>(operands.data, p.n, p.h, p.w, p.c),
        dense<Element>(operands.weights, p.k, p.r, p.s, p.c), partial, partial,
        typename Output::Params(), cutlass::conv::SplitKMode::kParallel);
    const int status = launch_convolution<Kernel>(call, arguments);
    if (status != 0) return status;
    const int64_t num_vectors = p.result_size() / kCount;
    const unsigned blocks = static_cast<unsigned>((num_vectors + 255) / 256);
    gemm_reduce<Element, kCount><<<blocks, 256, 0, call->stream>>>(
        static_cast<const float*>(call->workspace), static_cast<const Element*>(operands.bias),
        static_cast<const Element*>(operands.residual), static_cast<Element*>(call->output),
        num_vectors, p.k / kCount, p.slices, p.result_size(), p.epilogue);
    return static_cast<int>(cudaGetLastError());
  }

  static size_t workspace(const int64_t* sizes) {
    const Conv2dProblem p(sizes);
    return sizeof(float) * static_cast<size_t>(p.slices) * static_cast<size_t>(p.result_size());
  }
};

}  // namespace collage

#endif /* COLLAGE_CONV2D_SPLIT_H_ */
