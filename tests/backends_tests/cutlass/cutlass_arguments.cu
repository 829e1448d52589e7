// Prints what the GEMM kernels would be launched with; runs on the host and launches nothing.
#include <cstdint>
#include <cstdio>

#include "gemm/sm80.h"

namespace {

struct Shared {
  using Element = cutlass::half_t;
  using LayoutA = cutlass::layout::RowMajor;
  using LayoutB = cutlass::layout::ColumnMajor;
  static constexpr bool kHeavy = true;
  static constexpr bool kSource = true;
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

void print_epilogue(const collage::EpilogueArguments& e) {
  std::printf("\"epilogue\": [%g, %d, %d, %d]", e.alpha, e.activation, e.residual, e.after);
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
  const int64_t deep[] = {24, 40, 3000, 1, 3000, 3000, 0, 0, 0, 0, 2, 1, 7};
  std::printf("{");
  print_sm80(batched);
  print_split(deep);
  std::printf("}\n");
  return 0;
}
