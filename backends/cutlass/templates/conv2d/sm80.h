/* Forward convolutions as implicit GEMM on tensor cores from Ampere on: CUTLASS 2.x kernels.
 *
 * Config: Element, Operator, ThreadblockShape, WarpShape, InstructionShape, kStages, kIterator,
 * kAccessC and kAccessK (elements per access along input and output channels), kHeavy (costly
 * activations), kSource (residual).
 */
#ifndef COLLAGE_CONV2D_SM80_H_
#define COLLAGE_CONV2D_SM80_H_

#include "cutlass/cutlass.h"
#include "cutlass/conv/kernel/default_conv2d_fprop.h"
#include "cutlass/conv/kernel/default_conv2d_fprop_with_broadcast.h"
#include "cutlass/device_kernel.h"
#include "cutlass/epilogue/thread/linear_combination.h"

/* After the kernels, whose headers it needs and does not include. */
#include "cutlass/conv/device/implicit_gemm_convolution.h"

#include "conv2d/problem.h"
#include "epilogue_sm80.h"

namespace collage {

using ConvLayout = cutlass::layout::TensorNHWC;

/* The result's extents are given, so what is missing below and to the right of the data counts as
 * zeros, like any place outside. */
inline cutlass::conv::Conv2dProblemSize cutlass_problem(const Conv2dProblem& p, int slices) {
  return cutlass::conv::Conv2dProblemSize(
      p.n, p.h, p.w, p.c, p.k, p.r, p.s, p.p, p.q, p.top, p.left, p.stride_h, p.stride_w,
      p.dilation_h, p.dilation_w, cutlass::conv::Mode::kCrossCorrelation, slices, /*groups=*/1);
}

/* CUTLASS takes pointers to mutable data; it writes to the result alone. */
template <class Element>
cutlass::TensorRef<Element, ConvLayout> dense(const void* data, int n, int h, int w, int c) {
  return {static_cast<Element*>(const_cast<void*>(data)), ConvLayout::packed({n, h, w, c})};
}

/* Launches a kernel: once allowed its shared memory, no more than the launch itself. */
template <class Kernel>
int launch_convolution(const collage_cutlass_call* call,
                       const typename Kernel::Arguments& arguments) {
  using Device = cutlass::conv::device::ImplicitGemmConvolution<Kernel>;
  const cutlass::Status fits = Device::can_implement(arguments);
  if (fits != cutlass::Status::kSuccess) return -static_cast<int>(fits);

  constexpr int kSharedBytes = static_cast<int>(sizeof(typename Kernel::SharedStorage));
  static PerDevice<int> devices;
  int ready = 0;
  const cudaError_t error = devices.get(call->device, &ready, [](int, int*) {
    return allow_shared_memory(cutlass::Kernel<Kernel>, kSharedBytes);
  });
  if (error != cudaSuccess) return static_cast<int>(error);

  typename Kernel::Params params(arguments, nullptr);
  /* The kernel with a broadcast epilogue counts the steps of the general iterators only. */
  params.gemm_k_iterations = cutlass::conv::implicit_gemm_k_iterations(
      cutlass::conv::Operator::kFprop, Kernel::ThreadblockShape::kK, arguments.problem_size,
      Kernel::kIteratorAlgorithm);
  const dim3 grid = typename Kernel::ThreadblockSwizzle().get_grid_shape(params.grid_tiled_shape);
  cutlass::Kernel<Kernel><<<grid, Kernel::kThreadCount, kSharedBytes, call->stream>>>(params);
  return static_cast<int>(cudaGetLastError());
}

/* One kernel: convolution, bias, activation, residual, activation. */
template <class Config>
struct Conv2dSm80 {
  using Element = typename Config::Element;
  using Output = BroadcastOutput<Element, Config::kAccessK, Config::kHeavy, Config::kSource>;
  using Kernel = typename cutlass::conv::kernel::DefaultConv2dFpropWithBroadcast<
      Element, ConvLayout, Element, ConvLayout, Element, ConvLayout, float,
      cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80, typename Config::ThreadblockShape,
      typename Config::WarpShape, typename Config::InstructionShape, Output,
      cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<4>, Config::kStages,
      typename Config::Operator, Config::kIterator, cutlass::conv::StrideSupport::kUnity,
      Config::kAccessC, Config::kAccessC>::Kernel;

  static int run(const collage_cutlass_call* call) {
    const Conv2dProblem p(call->sizes);
    const Conv2dOperands operands(p, call->inputs);
    const typename Kernel::Arguments arguments(
        cutlass_problem(p, 1), dense<Element>(operands.data, p.n, p.h, p.w, p.c),
        dense<Element>(operands.weights, p.k, p.r, p.s, p.c),
        dense<Element>(operands.residual, p.n, p.p, p.q, p.k),
        dense<Element>(call->output, p.n, p.p, p.q, p.k), p.epilogue,
        cutlass::conv::SplitKMode::kSerial, const_cast<void*>(operands.bias), nullptr,
        /*ldr=*/0, /*ldt=*/0);
    return launch_convolution<Kernel>(call, arguments);
  }

  static size_t workspace(const int64_t*) { return 0; }
};

}  // namespace collage

#endif /* COLLAGE_CONV2D_SM80_H_ */
