// Hopper's fused attention on the CPU, each with several pieces of keys.
#include "hopper_on_host.h"

#include "attention/sm90.h"

namespace {

template <int kQueriesOf, int kKeysOf, int kDimOf, bool kBiasOf, class ElementOf>
struct Config {
  using Element = ElementOf;
  using Scores = collage::hopper::HostMultiply<Element, kKeysOf, true, true>;
  using Weighted = collage::hopper::HostKeptMultiply<Element, kDimOf>;
  static constexpr int kQueries = kQueriesOf, kKeys = kKeysOf, kDim = kDimOf;
  static constexpr bool kBias = kBiasOf;
};

template <class Of>
int attention(const collage_cutlass_call* call, bool joined, bool by_head) {
  using Kernel = collage::FusedAttention<Of>;
  if (joined) return Kernel::template run<true, false>(call);
  return by_head ? Kernel::template run<false, true>(call) : Kernel::template run<false, false>(call);
}

template <int kQueries, int kKeys, int kDim>
int attention(const collage_cutlass_call* call, bool bias, bool joined, bool by_head, bool half) {
  if (!half) {
    return bias ? attention<Config<kQueries, kKeys, kDim, true, __nv_bfloat16>>(call, joined, by_head)
                : attention<Config<kQueries, kKeys, kDim, false, __nv_bfloat16>>(call, joined, by_head);
  }
  return bias ? attention<Config<kQueries, kKeys, kDim, true, __half>>(call, joined, by_head)
              : attention<Config<kQueries, kKeys, kDim, false, __half>>(call, joined, by_head);
}

}  // namespace

// -1 where the block is none of those that are built here.
extern "C" int run_attention(int queries, int keys, int dim, bool bias, bool joined, bool by_head,
                             bool half, float scale, const int64_t* sizes,
                             const void* const* inputs, void* output) {
  const collage_cutlass_call call = {0, nullptr, nullptr, sizes, &scale, inputs, output};
  switch (queries * 1000000 + keys * 1000 + dim) {
    case 64064064: return attention<64, 64, 64>(&call, bias, joined, by_head, half);
    case 128064128: return attention<128, 64, 128>(&call, bias, joined, by_head, half);
    case 128128064: return attention<128, 128, 64>(&call, bias, joined, by_head, half);
    case 128064256: return attention<128, 64, 256>(&call, bias, joined, by_head, half);
    default: return -1;
  }
}
