/* GEMM on tensor cores from Ampere on, and on the ordinary cores: CUTLASS 2.x kernels.
 *
 * Config: Element, LayoutA, LayoutB (cutlass::layout), OperatorClass, Operator, ThreadblockShape,
 * WarpShape, InstructionShape (cutlass::gemm::GemmShape), kStages, kAlignmentA, kAlignmentB,
 * kAlignmentD (elements per access), kHeavy (costly activations), kSource (residual).
 */
#ifndef COLLAGE_GEMM_SM80_H_
#define COLLAGE_GEMM_SM80_H_

#include "cutlass/cutlass.h"
#include "cutlass/device_kernel.h"
#include "cutlass/epilogue/thread/linear_combination.h"
#include "cutlass/gemm/kernel/default_gemm_universal.h"
#include "cutlass/gemm/kernel/gemm_with_fused_epilogue.h"
#include "cutlass/gemm/threadblock/threadblock_swizzle.h"

/* After the ones above, which it leaves to bring in default_epilogue_simt.h. */
#include "cutlass/epilogue/threadblock/default_epilogue_with_broadcast.h"

#include "epilogue_sm80.h"
#include "gemm/problem.h"

namespace collage {

using GemmSwizzle = cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<4>;

/* The 2.x kernel with a given output operator; its main loop is what both variants share. */
template <class Config, class ElementD, class Output>
using DefaultGemm = typename cutlass::gemm::kernel::DefaultGemmUniversal<
    typename Config::Element, typename Config::LayoutA, cutlass::ComplexTransform::kNone,
    Config::kAlignmentA, typename Config::Element, typename Config::LayoutB,
    cutlass::ComplexTransform::kNone, Config::kAlignmentB, ElementD, cutlass::layout::RowMajor,
    float, typename Config::OperatorClass, cutlass::arch::Sm80, typename Config::ThreadblockShape,
    typename Config::WarpShape, typename Config::InstructionShape, Output, GemmSwizzle,
    Config::kStages, typename Config::Operator>::GemmKernel;

/* Launches a 2.x kernel: once allowed its shared memory, no more than the launch itself. */
template <class Kernel>
int launch(const collage_cutlass_call* call, const typename Kernel::Params& params) {
  constexpr int kSharedBytes = static_cast<int>(sizeof(typename Kernel::SharedStorage));
  static PerDevice<int> devices;
  int ready = 0;
  cudaError_t error = devices.get(call->device, &ready, [](int, int*) {
    return allow_shared_memory(cutlass::Kernel2<Kernel>, kSharedBytes);
  });
  if (error != cudaSuccess) return static_cast<int>(error);
  cutlass::Kernel2<Kernel>
      <<<params.get_grid_dims(), Kernel::kThreadCount, kSharedBytes, call->stream>>>(params);
  return static_cast<int>(cudaGetLastError());
}

/* A row-major matrix's leading dimension must let every access be aligned. */
inline bool aligned(const GemmProblem& p, int a, int b, int d) {
  return p.lda % a == 0 && p.batch_stride_a % a == 0 && p.ldb % b == 0 &&
         p.batch_stride_b % b == 0 && p.n % d == 0;
}

/* One kernel: product, bias, activation, residual. */
template <class Config>
struct GemmSm80 {
  using Element = typename Config::Element;
  using Output =
      BroadcastOutput<Element, Config::kAlignmentD, Config::kHeavy, Config::kSource>;
  using Base = DefaultGemm<Config, Element, Output>;
  static constexpr bool kSimt =
      cutlass::platform::is_same<typename Config::OperatorClass,
                                 cutlass::arch::OpClassSimt>::value;

  template <bool kSimtEpilogue, class Mma>
  struct SelectEpilogue {
    using type = typename cutlass::epilogue::threadblock::DefaultEpilogueWithBroadcastTensorOp<
        typename Config::ThreadblockShape, typename Mma::Operator, Base::Epilogue::kPartitionsK,
        Element, Element, Element, Output, Config::kAlignmentD>::Epilogue;
  };
  template <class Mma>
  struct SelectEpilogue<true, Mma> {
    using type = typename cutlass::epilogue::threadblock::DefaultEpilogueWithBroadcastSimt<
        typename Config::ThreadblockShape, typename Mma::Operator, Element, Element, Element,
        Output, Config::kAlignmentD>::Epilogue;
  };
  using Epilogue = typename SelectEpilogue<kSimt, typename Base::Mma>::type;
  using Kernel =
      cutlass::gemm::kernel::GemmWithFusedEpilogue<typename Base::Mma, Epilogue, GemmSwizzle>;

  static typename Kernel::Arguments arguments(const GemmProblem& p, const GemmOperands& operands,
                                              void* output) {
    using cutlass::gemm::GemmUniversalMode;
    return typename Kernel::Arguments(
        p.batch == 1 ? GemmUniversalMode::kGemm : GemmUniversalMode::kBatched, {p.m, p.n, p.k},
        p.batch, p.epilogue, operands.a, operands.b, operands.residual, output,
        const_cast<void*>(operands.bias), nullptr, p.batch_stride_a, p.batch_stride_b,
        p.batch_stride_d(), p.batch_stride_d(), /*batch_stride_Vector=*/0,
        /*batch_stride_Tensor=*/0, static_cast<int>(p.lda), static_cast<int>(p.ldb),
        /*ldc=*/p.n, /*ldd=*/p.n, /*ldr=*/0, /*ldt=*/0);
  }

  static int run(const collage_cutlass_call* call) {
    const GemmProblem problem(call->sizes);
    if (!aligned(problem, Config::kAlignmentA, Config::kAlignmentB, Config::kAlignmentD)) {
      return -static_cast<int>(cutlass::Status::kErrorMisalignedOperand);
    }
    const GemmOperands operands(problem, call->inputs);
    const auto args = arguments(problem, operands, call->output);
    cutlass::Status status = Kernel::can_implement(args);
    if (status != cutlass::Status::kSuccess) return -static_cast<int>(status);
    /* The number of multiprocessors and blocks on each count for stream-K only. */
    return launch<Kernel>(call, typename Kernel::Params(args, 1, 1));
  }

  static size_t workspace(const int64_t*) { return 0; }
};

/* Sums `slices` partial products of m * n floats each, then does what follows the product. */
template <class Element, int kCount>
__global__ void __launch_bounds__(256)
    gemm_reduce(const float* partial, const Element* bias, const Element* source, Element* output,
                int64_t num_vectors, int vectors_per_row, int slices, int64_t slice_stride,
                EpilogueArguments epilogue) {
  using Vector = cutlass::AlignedArray<float, kCount>;
  using Elements = cutlass::AlignedArray<Element, kCount>;
  constexpr bool kExact = cutlass::sizeof_bits<Element>::value == 32;
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (index >= num_vectors) return;
  const int64_t offset = index * kCount;

  cutlass::Array<float, kCount> sum = *reinterpret_cast<const Vector*>(partial + offset);
  for (int slice = 1; slice < slices; ++slice) {
    const Vector next = *reinterpret_cast<const Vector*>(partial + slice * slice_stride + offset);
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum[i] += next[i];
  }
  cutlass::Array<float, kCount> other;
  other.clear();
  if (bias != nullptr) {
    const int64_t column = (index % vectors_per_row) * kCount;
    const Elements loaded = *reinterpret_cast<const Elements*>(bias + column);
#pragma unroll
    for (int i = 0; i < kCount; ++i) other[i] = static_cast<float>(loaded[i]);
  }
  before_residual<true, kExact, kCount>(epilogue, sum, other);
  if (source != nullptr) {
    const Elements loaded = *reinterpret_cast<const Elements*>(source + offset);
#pragma unroll
    for (int i = 0; i < kCount; ++i) other[i] = static_cast<float>(loaded[i]);
  }
  residual<true, kExact, kCount>(epilogue, sum, other);
  Elements result;
#pragma unroll
  for (int i = 0; i < kCount; ++i) result[i] = static_cast<Element>(sum[i]);
  *reinterpret_cast<Elements*>(output + offset) = result;
}

/* Two kernels: products of slices of K into the workspace, then their sum. No batches. */
template <class Config>
struct GemmSplitK {
  using Element = typename Config::Element;
  static constexpr int kCount = Config::kAlignmentD < 4 ? Config::kAlignmentD : 4;
  static constexpr bool kSimt =
      cutlass::platform::is_same<typename Config::OperatorClass,
                                 cutlass::arch::OpClassSimt>::value;
  using Output = cutlass::epilogue::thread::LinearCombination<
      float, kSimt ? 1 : kCount, float, float,
      cutlass::epilogue::thread::ScaleType::Nothing>;
  using Kernel = DefaultGemm<Config, float, Output>;

  static typename Kernel::Arguments arguments(const GemmProblem& p, const GemmOperands& operands,
                                              void* workspace) {
    return typename Kernel::Arguments(
        cutlass::gemm::GemmUniversalMode::kGemmSplitKParallel, {p.m, p.n, p.k}, p.slices,
        typename Output::Params(), operands.a, operands.b, nullptr, workspace, p.batch_stride_a,
        p.batch_stride_b, p.batch_stride_d(), p.batch_stride_d(), p.lda, p.ldb, int64_t{p.n},
        int64_t{p.n});
  }

  static int run(const collage_cutlass_call* call) {
    const GemmProblem problem(call->sizes);
    if (!aligned(problem, Config::kAlignmentA, Config::kAlignmentB, Config::kAlignmentD) ||
        problem.batch != 1) {
      return -static_cast<int>(cutlass::Status::kErrorMisalignedOperand);
    }
    const GemmOperands operands(problem, call->inputs);
    const auto args = arguments(problem, operands, call->workspace);
    const typename Kernel::Params params(args, 1, 1);
    /* Slices are rounded up to whole cache lines, so there may be fewer than asked for. */
    const int slices = params.grid_tiled_shape.k();
    int status = launch<Kernel>(call, params);
    if (status != 0) return status;
    const int64_t num_vectors = problem.batch_stride_d() / kCount;
    const unsigned blocks = static_cast<unsigned>((num_vectors + 255) / 256);
    gemm_reduce<Element, kCount><<<blocks, 256, 0, call->stream>>>(
        static_cast<const float*>(call->workspace), static_cast<const Element*>(operands.bias),
        static_cast<const Element*>(operands.residual), static_cast<Element*>(call->output),
        num_vectors, problem.n / kCount, slices, problem.batch_stride_d(), problem.epilogue);
    return static_cast<int>(cudaGetLastError());
  }

  static size_t workspace(const int64_t* sizes) {
    const GemmProblem p(sizes);
    return sizeof(float) * static_cast<size_t>(p.slices) * static_cast<size_t>(p.batch_stride_d());
  }
};

}  // namespace collage

#endif /* COLLAGE_GEMM_SM80_H_ */
