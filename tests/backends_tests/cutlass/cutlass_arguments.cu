// Prints what the GEMM kernels would be launched with; runs on the host and launches nothing.
#include <cstdint>
#include <cstdio>

#include "gemm/sm80.h"
#include "gemm/sm90.h"

namespace {

struct Shared {
  using Element = cutlass::half_t;
  using LayoutA = cutlass::layout::RowMajor;
  using LayoutB = cutlass::layout::ColumnMajor;
  static constexpr bool kHeavy = true;
  static constexpr bool kSource = true;
};

struct Hopper : Shared {
  using TileShape = cute::Shape<cute::_64, cute::_128, cute::_64>;
  using ClusterShape = cute::Shape<cute::_1, cute::_1, cute::_1>;
  using MainloopSchedule = cutlass::gemm::KernelTmaWarpSpecializedPingpong;
  using EpilogueSchedule = cutlass::epilogue::TmaWarpSpecialized;
};

struct Swapped : Hopper {
  using LayoutA = cutlass::layout::ColumnMajor;
  using LayoutB = cutlass::layout::RowMajor;
  static constexpr bool kSource = false;
};

struct Ampere : Shared {
  using OperatorClass = cutlass::arch::OpClassTensorOp;
  using Operator = cutlass::arch::OpMultiplyAdd;
  using ThreadblockShape = cutlass::gemm::GemmShape<64, 64, 64>;
  using WarpShape = cutlass::gemm::GemmShape<32, 32, 64>;
  using InstructionShape = cutlass::gemm::GemmShape<16, 8, 16>;
  static constexpr int kStages = 4;
  static constexpr int kAlignmentA = 8;
  static constexpr int kAlignmentB = 8;
  static constexpr int kAlignmentD = 8;
};

// Addresses that are only printed.
const void* const kInputs[] = {(void*)0x100, (void*)0x200, (void*)0x300, (void*)0x400};
void* const kOutput = (void*)0x500;

long long number(const void* pointer) { return static_cast<long long>((intptr_t)pointer); }

template <class Stride>
void print_stride(const char* name, const Stride& stride) {
  std::printf("\"%s\": [%lld, %lld, %lld], ", name, (long long)cute::get<0>(stride),
              (long long)cute::get<1>(stride), (long long)cute::get<2>(stride));
}

void print_epilogue(const collage::EpilogueArguments& e) {
  std::printf("\"epilogue\": [%g, %d, %d, %d]", e.alpha, e.activation, e.residual, e.after);
}

template <class Config>
void print_sm90(const char* name, const int64_t* sizes) {
  using Gemm = collage::GemmSm90<Config>;
  const collage::GemmProblem problem(sizes);
  const auto args =
      Gemm::arguments(problem, collage::GemmOperands(problem, kInputs), kOutput);
  const auto [m, n, k, l] = args.problem_shape;
  std::printf("\"%s\": {\"shape\": [%d, %d, %d, %d], ", name, m, n, k, l);
  print_stride("a_stride", args.mainloop.dA);
  print_stride("b_stride", args.mainloop.dB);
  print_stride("c_stride", args.epilogue.dC);
  print_stride("d_stride", args.epilogue.dD);
  std::printf("\"pointers\": [%lld, %lld, %lld, %lld, %lld], ", number(args.mainloop.ptr_A),
              number(args.mainloop.ptr_B), number(args.epilogue.thread.op_1.ptr_row),
              number(args.epilogue.ptr_C), number(args.epilogue.ptr_D));
  if constexpr (Config::kSource) {
    print_epilogue(args.epilogue.thread.op_3);
  } else {
    print_epilogue(args.epilogue.thread.op_2);
  }
  std::printf("},\n");
}

void print_sm80(const int64_t* sizes) {
  const collage::GemmProblem problem(sizes);
  const auto args = collage::GemmSm80<Ampere>::arguments(
      problem, collage::GemmOperands(problem, kInputs), kOutput);
  std::printf("\"sm80\": {\"mode\": %d, \"shape\": [%d, %d, %d, %d], ", (int)args.mode,
              args.problem_size.m(), args.problem_size.n(), args.problem_size.k(),
              args.batch_count);
  std::printf("\"ld\": [%d, %d, %d, %d, %d], ", args.lda, args.ldb, args.ldc, args.ldd, args.ldr);
  std::printf("\"batch\": [%lld, %lld, %lld, %lld, %lld], ", (long long)args.batch_stride_A,
              (long long)args.batch_stride_B, (long long)args.batch_stride_C,
              (long long)args.batch_stride_D, (long long)args.batch_stride_Vector);
  std::printf("\"pointers\": [%lld, %lld, %lld, %lld, %lld], ", number(args.ptr_A),
              number(args.ptr_B), number(args.ptr_Vector), number(args.ptr_C),
              number(args.ptr_D));
  print_epilogue(args.epilogue);
  std::printf("},\n");
}

void print_split(const int64_t* sizes) {
  using Gemm = collage::GemmSplitK<Ampere>;
  const collage::GemmProblem problem(sizes);
  const auto args = Gemm::arguments(problem, collage::GemmOperands(problem, kInputs), kOutput);
  const typename Gemm::Kernel::Params params(args, 1, 1);
  std::printf("\"split\": {\"mode\": %d, \"slices\": %d, \"k_per_slice\": %d, ", (int)args.mode,
              params.grid_tiled_shape.k(), params.gemm_k_size);
  std::printf("\"slice_stride\": %lld, \"workspace\": %zu}\n", (long long)params.batch_stride_D,
              Gemm::workspace(sizes));
}

}  // namespace

int main() {
  // m, n, k, batch, lda, ldb, batch strides, bias, gelu, add, none, slices
  const int64_t batched[] = {24, 40, 16, 3, 16, 16, 384, 640, 1, 4, 1, 0, 1};
  const int64_t swapped[] = {24, 40, 16, 3, 24, 40, 384, 640, 0, 0, 0, 0, 1};
  const int64_t deep[] = {24, 40, 3000, 1, 3000, 3000, 0, 0, 0, 0, 2, 1, 7};
  std::printf("{");
  print_sm90<Hopper>("sm90", batched);
  print_sm90<Swapped>("swapped", swapped);
  print_sm80(batched);
  print_split(deep);
  std::printf("}\n");
  return 0;
}
