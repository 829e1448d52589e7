/* Hopper's products. Config as in hopper/tile.h, without Operands. */
#ifndef COLLAGE_GEMM_SM90_H_
#define COLLAGE_GEMM_SM90_H_

#include "gemm/problem.h"
#include "hopper/maps.h"
#include "hopper/tile.h"

namespace collage {

template <class Config>
struct GemmSm90 {
  using Element = typename Config::Element;
  static constexpr int kDepth = Config::kDepth;
  static constexpr int kBoxA = Config::kDeepA ? Config::kRows : kDepth;
  static constexpr int kBoxB = Config::kDeepB ? Config::kColumns : kDepth;

  struct Operands {
    CUtensorMap a, b;

    __device__ void prefetch() const {
      hopper::prefetch(a);
      hopper::prefetch(b);
    }
    __device__ int begin(int) const { return 0; }
    __device__ void next(int& k) const { k += kDepth; }

    __device__ void load_a(uint32_t to, uint32_t barrier, int k, int row, int batch) const {
      load<Config::kDeepA, Config::kRows>(to, a, barrier, k, row, batch);
    }
    __device__ void load_b(uint32_t to, uint32_t barrier, int k, int column, int batch) const {
      load<Config::kDeepB, Config::kColumns>(to, b, barrier, k, column, batch);
    }

   private:
    /* So many rows or columns from `first` on. */
    template <bool kDeep, int kExtent>
    __device__ static void load(uint32_t to, const CUtensorMap& map, uint32_t barrier, int k,
                                int first, int batch) {
#pragma unroll
      for (int i = 0; i < (kDeep ? kDepth : kExtent); i += 64) {
        const uint32_t part = to + i * (kDeep ? kExtent : kDepth) * 2;
        hopper::load(part, map, barrier, kDeep ? k + i : first + i, kDeep ? first : k, batch);
      }
    }
  };

  struct Whole : Config {
    using Operands = GemmSm90::Operands;
  };

  static int run(const collage_cutlass_call* call) {
    const GemmProblem problem(call->sizes);
    const GemmOperands operands(problem, call->inputs);
    hopper::Parameters<Operands> p{};
    cudaError_t error =
        matrix(&p.operands.a, operands.a, Config::kDeepA, problem.m, problem.k, problem.lda,
               problem.batch_stride_a, problem.batch, kBoxA);
    if (error != cudaSuccess) return static_cast<int>(error);
    error = matrix(&p.operands.b, operands.b, Config::kDeepB, problem.n, problem.k, problem.ldb,
                   problem.batch_stride_b, problem.batch, kBoxB);
    if (error != cudaSuccess) return static_cast<int>(error);
    p.result = {call->output, operands.bias,           operands.residual, problem.m,
                problem.n,    problem.batch_stride_d(), problem.epilogue};
    p.steps = (problem.k + kDepth - 1) / kDepth;
    return hopper::launch_tiles<Whole>(p, problem.batch, call);
  }

  static size_t workspace(const int64_t*) { return 0; }

 private:
  /* An operand of `extent` rows or columns. */
  static cudaError_t matrix(CUtensorMap* map, const void* data, bool is_deep, int64_t extent,
                            int64_t k, int64_t leading, int64_t batch_stride, int64_t batch,
                            int box) {
    const int64_t outer = is_deep ? extent : k;
    const int64_t apart = batch_stride > 0 ? batch_stride : outer * leading;
    return hopper::describe<Element>(map, data, {is_deep ? k : extent, outer, batch},
                                     {leading, apart}, box);
  }
};

}  // namespace collage

#endif /* COLLAGE_GEMM_SM90_H_ */
