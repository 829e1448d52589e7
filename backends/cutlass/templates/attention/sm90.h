/* Launches Hopper's fused attention. Config as in attention/sm90_kernel.h. */
#ifndef COLLAGE_ATTENTION_SM90_H_
#define COLLAGE_ATTENTION_SM90_H_

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>

#include "attention/sizes.h"
#include "attention/sm90_kernel.h"
#include "collage_cutlass.h"
#include "hopper/maps.h"

namespace collage {

template <class Config>
struct FusedAttention {
  using Element = typename Config::Element;
  using T = hopper::AttentionSm90<Config>;

  /* `joined`: q, k and v are parts of the first input. `by_head`: how the result lies. */
  template <bool kJoined, bool kByHead>
  static int run(const collage_cutlass_call* call) {
    const int64_t* sizes = call->sizes;
    const int64_t queries = sizes[kQueries], keys = sizes[kKeys];
    if (queries + keys > INT_MAX) return static_cast<int>(cudaErrorInvalidValue);
    hopper::Attention p{};
    auto describe = [&](CUtensorMap* map, int input, int offset, int64_t rows, int dim, int strides,
                        int box) {
      const Element* data = static_cast<const Element*>(call->inputs[input]) + sizes[offset];
      const int64_t extents[4] = {sizes[dim], rows, sizes[kHeads], sizes[kBatch]};
      return hopper::describe<Element>(
          map, data, extents, {sizes[strides], sizes[strides + 1], sizes[strides + 2]}, box);
    };
    cudaError_t error = describe(&p.q, 0, kQOffset, queries, kDim, kQm, Config::kQueries);
    if (error != cudaSuccess) return static_cast<int>(error);
    error = describe(&p.k, kJoined ? 0 : 1, kKOffset, keys, kDim, kKm, Config::kKeys);
    if (error != cudaSuccess) return static_cast<int>(error);
    error = describe(&p.v, kJoined ? 0 : 2, kVOffset, keys, kDimValue, kVm, Config::kKeys);
    if (error != cudaSuccess) return static_cast<int>(error);

    p.bias = Config::kBias ? call->inputs[kJoined ? 1 : 3] : nullptr;
    p.bias_strides = {sizes[kBiasM], sizes[kBiasH], sizes[kBiasB]};
    p.output = call->output;
    const int64_t width = sizes[kDimValue], heads = sizes[kHeads];
    p.output_strides = kByHead
        ? hopper::AttentionStrides{width, queries * width, heads * queries * width}
        : hopper::AttentionStrides{heads * width, width, queries * heads * width};
    p.queries = static_cast<int>(queries);
    p.keys = static_cast<int>(keys);
    p.dim_value = static_cast<int>(width);
    const int64_t mask = sizes[kMask];
    p.ahead = static_cast<int>(mask == 0 ? keys : mask == 1 ? 0 : keys - queries);
    p.mirrored = call->scalars[0] < 0;
    /* Hidden scores are infinite, and have to stay so. */
    p.scale = fmaxf(fabsf(call->scalars[0]), FLT_MIN);
    return launch(p, heads, sizes[kBatch], call);
  }

 private:
  static int launch(hopper::Attention& p, int64_t heads, int64_t batch,
                    const collage_cutlass_call* call) {
    static PerDevice<bool> devices;
    bool is_allowed = false;
    const cudaError_t error = devices.get(call->device, &is_allowed, [](int, bool* value) {
      *value = true;
      return allow_shared_memory(hopper::attend<Config>, T::shared_bytes(T::kStages));
    });
    if (error != cudaSuccess) return static_cast<int>(error);
    const int pieces = (p.keys - 1) / Config::kKeys + 1;
    p.stages = pieces < T::kStages ? pieces : T::kStages;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((p.queries - 1) / Config::kQueries + 1, static_cast<unsigned>(heads),
                          static_cast<unsigned>(batch));
    config.blockDim = dim3(T::kThreads);
    config.dynamicSmemBytes = T::shared_bytes(p.stages);
    config.stream = call->stream;
    return static_cast<int>(cudaLaunchKernelEx(&config, hopper::attend<Config>, p));
  }
};

}  // namespace collage

#endif /* COLLAGE_ATTENTION_SM90_H_ */
