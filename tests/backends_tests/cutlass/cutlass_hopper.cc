// Hopper's products and convolutions on the CPU, each with several tiles.
#include "hopper_on_host.h"

#include "conv2d/sm90.h"
#include "gemm/sm90.h"

namespace {

template <int kRowsOf, int kColumnsOf, int kDepthOf, bool kDeepAOf, bool kDeepBOf, bool kSourceOf,
          class ElementOf = __half>
struct Config {
  using Element = ElementOf;
  using Multiply = collage::hopper::HostMultiply<Element, kColumnsOf, kDeepAOf, kDeepBOf>;
  static constexpr int kRows = kRowsOf, kColumns = kColumnsOf, kDepth = kDepthOf;
  static constexpr bool kDeepA = kDeepAOf, kDeepB = kDeepBOf;
  static constexpr bool kHeavy = true, kSource = kSourceOf;
};

template <int kRows, int kColumns, int kDepth, bool kDeepA, bool kDeepB>
int product(const collage_cutlass_call* call, bool source) {
  if (source) {
    return collage::GemmSm90<Config<kRows, kColumns, kDepth, kDeepA, kDeepB, true>>::run(call);
  }
  return collage::GemmSm90<Config<kRows, kColumns, kDepth, kDeepA, kDeepB, false>>::run(call);
}

template <int kRows, int kColumns, int kDepth>
int product(const collage_cutlass_call* call, bool deep_a, bool deep_b, bool source) {
  if (deep_a) {
    return deep_b ? product<kRows, kColumns, kDepth, true, true>(call, source)
                  : product<kRows, kColumns, kDepth, true, false>(call, source);
  }
  return deep_b ? product<kRows, kColumns, kDepth, false, true>(call, source)
                : product<kRows, kColumns, kDepth, false, false>(call, source);
}

template <int kRows, int kColumns>
int convolution(const collage_cutlass_call* call, bool source) {
  if (source) {
    return collage::Conv2dSm90<Config<kRows, kColumns, 64, true, true, true>>::run(call);
  }
  return collage::Conv2dSm90<Config<kRows, kColumns, 64, true, true, false>>::run(call);
}

}  // namespace

// -1 where the tile is none of those that are built here.
extern "C" int run_product(int rows, int columns, int depth, bool deep_a, bool deep_b, bool source,
                           const int64_t* sizes, const void* const* inputs, void* output) {
  const collage_cutlass_call call = {0, nullptr, nullptr, sizes, nullptr, inputs, output};
  const int tile = rows * 1000000 + columns * 1000 + depth;
  switch (tile) {
    case 64064128: return product<64, 64, 128>(&call, deep_a, deep_b, source);
    case 64128064: return product<64, 128, 64>(&call, deep_a, deep_b, source);
    case 128064064: return product<128, 64, 64>(&call, deep_a, deep_b, source);
    case 192128064: return product<192, 128, 64>(&call, deep_a, deep_b, source);
    case 128256064: return product<128, 256, 64>(&call, deep_a, deep_b, source);
    default: return -1;
  }
}

// bfloat16, of the tile 64 x 128 x 64; operands contiguous along the reduced axis, and a residual.
extern "C" int run_bfloat16(const int64_t* sizes, const void* const* inputs, void* output) {
  const collage_cutlass_call call = {0, nullptr, nullptr, sizes, nullptr, inputs, output};
  return collage::GemmSm90<Config<64, 128, 64, true, true, true, __nv_bfloat16>>::run(&call);
}

extern "C" int run_convolution(int rows, int columns, bool source, const int64_t* sizes,
                               const void* const* inputs, void* output) {
  const collage_cutlass_call call = {0, nullptr, nullptr, sizes, nullptr, inputs, output};
  if (rows == 64 && columns == 64) return convolution<64, 64>(&call, source);
  if (rows == 128 && columns == 192) return convolution<128, 192>(&call, source);
  return -1;
}

// The corner of every tile of a grid of so many blocks, as (block, row, column, matrix).
extern "C" int corners(int blocks, int rows, int columns, int batch, int* to) {
  using Turn = collage::hopper::Turn<Config<64, 64, 64, true, true, false>>;
  const collage::hopper::Tiles tiles(rows, columns, batch);
  gridDim = dim3(blocks);
  int found = 0;
  const int grid[] = {blocks, 1, 1}, threads[] = {1, 1, 1};
  cuda_on_host::launch(grid, threads, [&] {
    for (Turn turn(tiles); !turn.is_over(); turn.next()) {
      const auto corner = turn.corner();
      int* row = to + 4 * found++;
      row[0] = blockIdx.x;
      row[1] = corner.row / 64;
      row[2] = corner.column / 64;
      row[3] = corner.batch;
    }
  });
  return found;
}

extern "C" void divide(int by, int number, int* quotient, int* rest) {
  collage::hopper::Divisor(by).divide(number, quotient, rest);
}
