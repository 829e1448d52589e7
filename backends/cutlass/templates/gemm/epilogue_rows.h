/* Hopper's epilogue for results that TMA cannot store: rows that are no multiple of 16 bytes long.
 *
 * The threads store elements one by one, but side by side: each warp passes its accumulators
 * through shared memory, 16 rows of 32 columns at a time, and then each of its accesses is to one
 * run of 32 elements. Straight from the registers it would be to pieces of eight rows.
 */
#ifndef COLLAGE_EPILOGUE_ROWS_H_
#define COLLAGE_EPILOGUE_ROWS_H_

#include "collage_activation.h"
#include "cute/tensor.hpp"
#include "cutlass/array.h"
#include "cutlass/cutlass.h"

namespace collage {

/* One number for all rows of a column. */
struct SameInEveryRow {
  float value;
  __device__ __forceinline__ float operator[](int) const { return value; }
};

/* An operator-style epilogue, for cutlass's Sm90TmaWarpSpecializedAdapter. */
template <class Element, bool kHeavy, bool kSource>
class RowsEpilogueOperator {
 public:
  using ElementC = Element;
  using ElementD = Element;
  using StrideC = cute::Stride<int64_t, cute::Int<1>, int64_t>;
  using StrideD = StrideC;

  /* A warp's part of a warp group's accumulators: 16 rows, of which it takes 32 columns at once. */
  static constexpr int kRows = 16;
  static constexpr int kColumns = 32;
  static constexpr int kMaxWarps = 8;
  /* Eight more, so that the pairs that a warp writes side by side lie in different banks. */
  static constexpr int kPitch = kColumns + 8;

  struct SharedStorage {
    alignas(16) float rows[kMaxWarps][kRows][kPitch];
  };

  struct Thread {
    const Element* bias = nullptr;
    EpilogueArguments epilogue{};

    /* From the arguments of EpilogueSm90's tree: accumulator, bias, residual if any, function. */
    template <class Tree>
    Thread& operator=(const Tree& tree) {
      bias = tree.op_1.ptr_row;
      if constexpr (kSource) {
        epilogue = tree.op_3;
      } else {
        epilogue = tree.op_2;
      }
      return *this;
    }
  };

  struct Arguments {
    Thread thread{};
    const Element* ptr_C = nullptr;
    StrideC dC{};
    Element* ptr_D = nullptr;
    StrideD dD{};
  };
  using Params = Arguments;

  template <class ProblemShape>
  static constexpr Params to_underlying_arguments(const ProblemShape&, const Arguments& args,
                                                  void*) {
    return args;
  }

  template <class ProblemShape>
  static size_t get_workspace_size(const ProblemShape&, const Arguments&) {
    return 0;
  }

  template <class ProblemShape, class Adapter>
  static cutlass::Status initialize_workspace(const ProblemShape&, const Arguments&, void*,
                                              cudaStream_t, Adapter*) {
    return cutlass::Status::kSuccess;
  }

  template <class ProblemShape>
  static bool can_implement(const ProblemShape&, const Arguments&) {
    return true;
  }

  CUTLASS_HOST_DEVICE
  RowsEpilogueOperator(const Params& params) : params_(params) {}

  /* `thread`: among those that computed the tile. `shared`: the SharedStorage; a warp has a part of
   * it to itself, for pingpong kernels let their warp groups in one after the other. */
  template <class ProblemShape, class BlockShape, class BlockCoord, class Engine, class Layout,
            class TiledMma, class Residue>
  CUTLASS_DEVICE void operator()(const ProblemShape& problem, const BlockShape& block,
                                 const BlockCoord& coord,
                                 const cute::Tensor<Engine, Layout>& accumulators,
                                 const TiledMma& mma, const Residue&, int thread, char* shared) {
    using namespace cute;
    static_assert(size(TiledMma{}) <= 32 * kMaxWarps);
    /* ((2 columns, 2 rows eight apart, groups of eight columns), products down, products across) */
    static_assert(size<0, 0>(Layout{}) == 2 && size<0, 1>(Layout{}) == 2);
    constexpr int kGroups = size<0, 2>(Layout{});
    constexpr int kGroupsAtOnce = kColumns / 8;
    static_assert(kGroups % kGroupsAtOnce == 0);

    const int lane = thread % 32;
    const int pair_row = lane / 4, pair_column = 2 * (lane % 4);
    auto& rows = reinterpret_cast<SharedStorage*>(shared)->rows[thread / 32];
    auto where = mma.get_thread_slice(thread).partition_C(make_identity_tensor(take<0, 2>(block)));
    const int tile_row = int(get<0>(coord)) * int(size<0>(block));
    const int tile_column = int(get<1>(coord)) * int(size<1>(block));
    const int64_t batch = int64_t(get<3>(coord));

    CUTLASS_PRAGMA_UNROLL
    for (int across = 0; across < size<2>(Layout{}); ++across) {
      CUTLASS_PRAGMA_UNROLL
      for (int down = 0; down < size<1>(Layout{}); ++down) {
        CUTLASS_PRAGMA_UNROLL
        for (int group = 0; group < kGroups; group += kGroupsAtOnce) {
          __syncwarp();
          CUTLASS_PRAGMA_UNROLL
          for (int i = 0; i < kGroupsAtOnce; ++i) {
            CUTLASS_PRAGMA_UNROLL
            for (int half = 0; half < 2; ++half) {
              const float2 pair = {accumulators(make_coord(0, half, group + i), down, across),
                                   accumulators(make_coord(1, half, group + i), down, across)};
              *reinterpret_cast<float2*>(&rows[pair_row + 8 * half][8 * i + pair_column]) = pair;
            }
          }
          __syncwarp();
          const auto own = where(make_coord(0, 0, group), down, across);
          store(problem, rows, tile_row + int(get<0>(own)) - pair_row,
                tile_column + int(get<1>(own)) - pair_column + lane, lane, batch);
        }
      }
    }
  }

 private:
  /* Finishes and stores one column, from `first_row` on. */
  template <class ProblemShape, class Rows>
  CUTLASS_DEVICE void store(const ProblemShape& problem, const Rows& rows, int first_row,
                            int column, int lane, int64_t batch) const {
    const int num_rows = int(cute::get<0>(problem)) - first_row;
    if (column >= int(cute::get<1>(problem))) return;
    cutlass::Array<float, kRows> x;
    CUTLASS_PRAGMA_UNROLL
    for (int row = 0; row < kRows; ++row) x[row] = rows[row][lane];
    const Thread& thread = params_.thread;
    const float bias = thread.bias == nullptr ? 0.0f : static_cast<float>(thread.bias[column]);
    before_residual<kHeavy, false, kRows>(thread.epilogue, x, SameInEveryRow{bias});
    if constexpr (kSource) {
      const int64_t step = cute::get<0>(params_.dC);
      const Element* source =
          params_.ptr_C + batch * cute::get<2>(params_.dC) + first_row * step + column;
      cutlass::Array<float, kRows> other;
      CUTLASS_PRAGMA_UNROLL
      for (int row = 0; row < kRows; ++row) {
        other[row] = row < num_rows ? static_cast<float>(source[row * step]) : 0.0f;
      }
      residual<kHeavy, false, kRows>(thread.epilogue, x, other);
    }
    const int64_t step = cute::get<0>(params_.dD);
    Element* output = params_.ptr_D + batch * cute::get<2>(params_.dD) + first_row * step + column;
    CUTLASS_PRAGMA_UNROLL
    for (int row = 0; row < kRows; ++row) {
      if (row < num_rows) output[row * step] = static_cast<Element>(x[row]);
    }
  }

  Params params_;
};

}  // namespace collage

#endif /* COLLAGE_EPILOGUE_ROWS_H_ */
