/* Forward convolutions on Hopper: the copy engine gathers pixels (im2col), a warpgroup multiplies.
 *
 * Config: Element, TileShape (of m, n, k), kHeavy (costly activations), kSource (residual).
 */
#ifndef COLLAGE_CONV2D_SM90_H_
#define COLLAGE_CONV2D_SM90_H_

#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
/* The builders use what this defines and do not include it. */
#include "cutlass/kernel_hardware_info.h"
#include "cutlass/conv/collective/collective_builder.hpp"
#include "cutlass/conv/kernel/conv_universal.hpp"
#include "cutlass/device_kernel.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"

#include "conv2d/problem.h"
#include "epilogue_sm90.h"

namespace collage {

template <class Config>
struct Conv2dSm90 {
  using Element = typename Config::Element;
  using Layout = cutlass::layout::TensorNHWC;
  using TileShape = typename Config::TileShape;
  /* The main loop's reduced axis may have modes of its own. */
  using MainTile = cute::Shape<cute::tuple_element_t<0, TileShape>,
                               cute::tuple_element_t<1, TileShape>,
                               cute::Shape<cute::tuple_element_t<2, TileShape>>>;
  using Cluster = cute::Shape<cute::_1, cute::_1, cute::_1>;
  using ElementC = cute::conditional_t<Config::kSource, Element, void>;
  static constexpr int kAccess = 128 / cutlass::sizeof_bits<Element>::value;

  using Tree = EpilogueSm90<Element, TileShape, Config::kHeavy, Config::kSource>;

  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, ElementC, Layout, kAccess,
      Element, Layout, kAccess, cutlass::epilogue::TmaWarpSpecialized,
      typename Tree::Fusion>::CollectiveOp;

  using Mainloop = typename cutlass::conv::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, cutlass::conv::Operator::kFprop,
      Element, Layout, kAccess, Element, Layout, kAccess, float, MainTile, Cluster,
      cutlass::conv::collective::StageCountAutoCarveout<sizeof(typename Epilogue::SharedStorage)>,
      cutlass::conv::KernelImplicitTmaWarpSpecializedSm90>::CollectiveOp;

  using Shape = cutlass::conv::ConvProblemShape<cutlass::conv::Operator::kFprop, 2>;
  using Kernel = cutlass::conv::kernel::ConvUniversal<Shape, Mainloop, Epilogue>;

  static typename Kernel::Arguments arguments(const Conv2dProblem& p,
                                              const Conv2dOperands& operands, void* output) {
    typename Kernel::Arguments args{};
    args.problem_shape =
        Shape(cutlass::conv::Mode::kCrossCorrelation, {p.n, p.h, p.w, p.c}, {p.k, p.r, p.s, p.c},
              {p.top, p.left}, {p.below, p.right}, {p.stride_h, p.stride_w},
              {p.dilation_h, p.dilation_w}, /*groups=*/1);
    args.mainloop.ptr_A = static_cast<const Element*>(operands.data);
    args.mainloop.ptr_B = static_cast<const Element*>(operands.weights);
    /* Strides of the result's pixels along q, p and n; its channels are dense. */
    typename Kernel::StrideD stride{};
    const int64_t k = p.k;
    cute::get<0>(stride) = cute::make_stride(k, k * p.q, k * p.q * p.p);
    args.epilogue.thread = Tree::arguments(operands.bias, p.epilogue);
    args.epilogue.ptr_C = static_cast<const Element*>(operands.residual);
    args.epilogue.dC = stride;
    args.epilogue.ptr_D = static_cast<Element*>(output);
    args.epilogue.dD = stride;
    return args;
  }

  static int run(const collage_cutlass_call* call) {
    static PerDevice<int> devices;
    int ready = 0;
    const cudaError_t error = devices.get(call->device, &ready, [](int, int*) {
      return allow_shared_memory(cutlass::device_kernel<Kernel>, Kernel::SharedStorageSize);
    });
    if (error != cudaSuccess) return static_cast<int>(error);

    const Conv2dProblem problem(call->sizes);
    const Conv2dOperands operands(problem, call->inputs);
    const typename Kernel::Arguments args = arguments(problem, operands, call->output);
    if (!Kernel::can_implement(args)) {
      return -static_cast<int>(cutlass::Status::kErrorInvalidProblem);
    }
    const typename Kernel::Params params = Kernel::to_underlying_arguments(args, nullptr);
    cutlass::device_kernel<Kernel>
        <<<Kernel::get_grid_shape(params), Kernel::get_block_shape(), Kernel::SharedStorageSize,
           call->stream>>>(params);
    return static_cast<int>(cudaGetLastError());
  }

  static size_t workspace(const int64_t*) { return 0; }
};

}  // namespace collage

#endif /* COLLAGE_CONV2D_SM90_H_ */
