// The epilogue of results that TMA cannot store, for whole matrices of accumulators, on the CPU.
#include "cuda_on_host.h"

#define __expf expf
#define __fdividef(a, b) ((a) / (b))

#include "cute/atom/mma_atom.hpp"
#include "cute/atom/mma_traits_sm90_gmma.hpp"
#include "cute/tensor.hpp"
#include "gemm/epilogue_rows.h"

namespace {

using Element = cutlass::half_t;

struct Problem {
  int m, n, batch;
  const float* accumulators;  // (batch, m, n)
  const Element* bias;
  const Element* source;
  Element* output;
  int activation, residual;
};

// Every tile, by the threads that a kernel's Mma computes it with.
template <class Mma, int kM, int kN, bool kSource>
void run_tiles(const Problem& p) {
  using namespace cute;
  using Operator = collage::RowsEpilogueOperator<Element, true, kSource>;
  const auto block = Shape<Int<kM>, Int<kN>, _64>{};
  const auto shape = make_shape(p.m, p.n, 64, p.batch);
  const typename Operator::StrideD stride{p.n, Int<1>{}, int64_t{p.m} * p.n};
  collage::EpilogueArguments chain;
  chain.activation = p.activation;
  chain.residual = p.residual;
  const typename Operator::Arguments args{{p.bias, chain}, p.source, stride, p.output, stride};
  static typename Operator::SharedStorage shared;

  const int grid[] = {(p.m + kM - 1) / kM, (p.n + kN - 1) / kN, p.batch};
  const int threads[] = {int(size(Mma{})), 1, 1};
  cuda_on_host::launch(grid, threads, [&] {
    const int thread = int(threadIdx.x);
    const int m = int(blockIdx.x), n = int(blockIdx.y), l = int(blockIdx.z);
    Mma mma;
    auto accumulators = partition_fragment_C(mma, take<0, 2>(block));
    auto where = mma.get_thread_slice(thread).partition_C(make_identity_tensor(take<0, 2>(block)));
    for (int i = 0; i < size(accumulators); ++i) {
      const int row = m * kM + int(get<0>(where(i))), column = n * kN + int(get<1>(where(i)));
      const bool inside = row < p.m && column < p.n;
      const int64_t place = (int64_t{l} * p.m + row) * p.n + column;
      accumulators(i) = inside ? p.accumulators[place] : NAN;
    }
    Operator op(args);
    op(shape, block, make_coord(m, n, _, l), accumulators, mma, 0, thread,
       reinterpret_cast<char*>(&shared));
  });
}

template <class Atom, int kGroups, int kM, int kN>
void run(const Problem& p) {
  using Groups = cute::Layout<cute::Shape<cute::Int<kGroups>, cute::_1, cute::_1>>;
  using Mma = cute::TiledMMA<cute::MMA_Atom<Atom>, Groups>;
  p.source == nullptr ? run_tiles<Mma, kM, kN, false>(p) : run_tiles<Mma, kM, kN, true>(p);
}

using cute::GMMA::Major;
template <template <Major, Major, cute::GMMA::ScaleIn, cute::GMMA::ScaleIn> class Operation>
using F32 = Operation<Major::K, Major::K, cute::GMMA::ScaleIn::One, cute::GMMA::ScaleIn::One>;

}  // namespace

// 0 where the tile is one of the kernels'.
extern "C" int run_epilogue(int tile_m, int tile_n, int m, int n, int batch,
                            const float* accumulators, const void* bias, const void* source,
                            void* output, int activation, int residual) {
  const Problem p{m, n, batch, accumulators, static_cast<const Element*>(bias),
                  static_cast<const Element*>(source), static_cast<Element*>(output),
                  activation, residual};
  if (tile_m == 128 && tile_n == 256) {
    run<F32<cute::SM90::GMMA::MMA_64x256x16_F32F16F16_SS>, 2, 128, 256>(p);
  } else if (tile_m == 256 && tile_n == 128) {
    run<F32<cute::SM90::GMMA::MMA_64x128x16_F32F16F16_SS>, 2, 256, 128>(p);
  } else if (tile_m == 128 && tile_n == 128) {
    run<F32<cute::SM90::GMMA::MMA_64x128x16_F32F16F16_SS>, 1, 128, 128>(p);
  } else if (tile_m == 64 && tile_n == 128) {
    run<F32<cute::SM90::GMMA::MMA_64x128x16_F32F16F16_SS>, 1, 64, 128>(p);
  } else if (tile_m == 64 && tile_n == 64) {
    run<F32<cute::SM90::GMMA::MMA_64x64x16_F32F16F16_SS>, 1, 64, 64>(p);
  } else {
    return 1;
  }
  return 0;
}
