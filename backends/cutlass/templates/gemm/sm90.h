/* Hopper's warp-specialized GEMM with TMA: one kernel per Config.
 *
 * Config: Element, LayoutA, LayoutB (cutlass::layout), TileShape, ClusterShape (cute shapes),
 * MainloopSchedule, EpilogueSchedule, kHeavy (costly activations), kSource (residual).
 */
#ifndef COLLAGE_GEMM_SM90_H_
#define COLLAGE_GEMM_SM90_H_

#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
/* Not the headers that name these for every architecture: they take twice the time to compile. */
#include "cutlass/gemm/collective/builders/sm90_gmma_builder.inl"
#include "cutlass/gemm/collective/sm90_mma_tma_gmma_ss_warpspecialized.hpp"
#include "cutlass/gemm/kernel/sm90_gemm_tma_warpspecialized_cooperative.hpp"
#include "cutlass/gemm/kernel/sm90_gemm_tma_warpspecialized_pingpong.hpp"
#include "cutlass/kernel_hardware_info.h"
#include "epilogue_sm90.h"
#include "gemm/problem.h"

namespace collage {

template <class Config>
struct GemmSm90 {
  using Element = typename Config::Element;
  using LayoutA = typename Config::LayoutA;
  using LayoutB = typename Config::LayoutB;
  using LayoutD = cutlass::layout::RowMajor;
  using TileShape = typename Config::TileShape;
  using ClusterShape = typename Config::ClusterShape;
  using ElementC = cute::conditional_t<Config::kSource, Element, void>;
  static constexpr int kAlignment = 128 / cutlass::sizeof_bits<Element>::value;

  using Tree = EpilogueSm90<Element, TileShape, Config::kHeavy, Config::kSource>;

  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, ElementC, LayoutD, kAlignment,
      Element, LayoutD, kAlignment, typename Config::EpilogueSchedule,
      typename Tree::Fusion>::CollectiveOp;

  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, LayoutA, kAlignment, Element,
      LayoutB, kAlignment, float, TileShape, ClusterShape,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
          sizeof(typename Epilogue::SharedStorage))>,
      typename Config::MainloopSchedule>::CollectiveOp;

  using Kernel =
      cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue>;

  using StrideA = typename Kernel::StrideA;
  using StrideB = typename Kernel::StrideB;
  using StrideD = typename Kernel::StrideD;

  /* CuTe's strides of (rows, k, batch); the contiguous axis is static. */
  template <class Stride>
  static Stride strides(int64_t leading, int64_t batch) {
    if constexpr (cute::is_static_v<cute::remove_cvref_t<decltype(cute::get<0>(Stride{}))>>) {
      return Stride{cute::Int<1>{}, leading, batch};
    } else {
      return Stride{leading, cute::Int<1>{}, batch};
    }
  }

  static typename Kernel::Arguments arguments(const GemmProblem& p, const GemmOperands& operands,
                                              void* output) {
    const auto stride_d = strides<StrideD>(p.n, p.batch_stride_d());
    typename Kernel::Arguments args{};
    args.mode = cutlass::gemm::GemmUniversalMode::kGemm;
    args.problem_shape = {p.m, p.n, p.k, p.batch};
    args.mainloop.ptr_A = static_cast<const Element*>(operands.a);
    args.mainloop.dA = strides<StrideA>(p.lda, p.batch_stride_a);
    args.mainloop.ptr_B = static_cast<const Element*>(operands.b);
    args.mainloop.dB = strides<StrideB>(p.ldb, p.batch_stride_b);
    args.epilogue.thread = Tree::arguments(operands.bias, p.epilogue);
    args.epilogue.ptr_C = static_cast<const Element*>(operands.residual);
    args.epilogue.dC = stride_d;
    args.epilogue.ptr_D = static_cast<Element*>(output);
    args.epilogue.dD = stride_d;
    return args;
  }

  static int run(const collage_cutlass_call* call) {
    static PerDevice<cutlass::KernelHardwareInfo> devices;
    cutlass::KernelHardwareInfo hardware;
    cudaError_t error = devices.get(call->device, &hardware, prepare);
    if (error != cudaSuccess) return static_cast<int>(error);

    const GemmProblem problem(call->sizes);
    const GemmOperands operands(problem, call->inputs);
    typename Kernel::Arguments args = arguments(problem, operands, call->output);
    args.hw_info = hardware;
    if (!Kernel::can_implement(args)) {
      return -static_cast<int>(cutlass::Status::kErrorMisalignedOperand);
    }

    typename Kernel::Params params = Kernel::to_underlying_arguments(args, nullptr);
    cudaLaunchConfig_t config = {};
    config.gridDim = Kernel::get_grid_shape(params);
    config.blockDim = Kernel::get_block_shape();
    config.dynamicSmemBytes = Kernel::SharedStorageSize;
    config.stream = call->stream;
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = cute::size<0>(ClusterShape{});
    cluster.val.clusterDim.y = cute::size<1>(ClusterShape{});
    cluster.val.clusterDim.z = 1;
    config.attrs = &cluster;
    config.numAttrs = 1;
    void* arguments[] = {&params};
    return static_cast<int>(
        cudaLaunchKernelExC(&config, (const void*)cutlass::device_kernel<Kernel>, arguments));
  }

  /* The persistent scheduler keeps nothing in memory. */
  static size_t workspace(const int64_t*) { return 0; }

 private:
  static_assert(cute::is_same_v<ElementC, void> || cute::is_same_v<ElementC, Element>);
  static_assert(cute::is_static_v<ClusterShape>);

  static cudaError_t prepare(int device, cutlass::KernelHardwareInfo* hardware) {
    cudaError_t error =
        allow_shared_memory(cutlass::device_kernel<Kernel>, Kernel::SharedStorageSize);
    if (error != cudaSuccess) return error;
    *hardware =
        cutlass::KernelHardwareInfo::make_kernel_hardware_info<Kernel>(device);
    return hardware->sm_count > 0 ? cudaSuccess : cudaErrorUnknown;
  }
};

}  // namespace collage

#endif /* COLLAGE_GEMM_SM90_H_ */
