/* Hopper's fused attention: softmax(scale * q @ k^T + bias) @ v, the scores never in memory.
 *
 * A block has some queries of one head; each of its warp groups has 64 of them. One thread has the
 * copy engine bring pieces of keys and values. While a piece's scores become weights, the products
 * of the piece before are under way. Dao et al., "FlashAttention-3", 2024, section 3.2.
 *
 * Config:
 *   Element, kBias
 *   kQueries, kKeys: of a block and a piece; multiples of 64
 *   kDim: elements of a head, with zeros behind; a multiple of 64
 *   Scores, Weighted (multiply.cu.jinja): 64 queries by kKeys, 64 by kDim from registers
 */
#ifndef COLLAGE_ATTENTION_SM90_KERNEL_H_
#define COLLAGE_ATTENTION_SM90_KERNEL_H_

#include <stdint.h>

#include "attention/softmax.h"
#include "hopper/elements.h"
#include "hopper/operands.h"
#include "hopper/pass.h"
#include "hopper/ptx.h"

namespace collage {
namespace hopper {

struct AttentionStrides {
  int64_t row, head, batch;

  __device__ __forceinline__ int64_t at(int64_t r) const {
    return r * row + blockIdx.y * head + blockIdx.z * batch;
  }
};

struct Attention {
  CUtensorMap q, k, v;
  const void* bias;
  void* output;
  AttentionStrides bias_strides, output_strides;
  int queries, keys, dim_value;
  int ahead;   /* how many keys behind its own place a query sees */
  int stages;
  float scale; /* not negative: `mirrored` scores are negated before */
  bool mirrored;

  /* The last key that a query sees. */
  __device__ __forceinline__ int last_seen(int query) const {
    const int last = query + ahead;
    return last < keys ? last : keys - 1;
  }
};

template <class Config>
struct AttentionSm90 {
  using Element = typename Config::Element;

  static constexpr int kQueries = Config::kQueries, kKeys = Config::kKeys, kDim = Config::kDim;
  static constexpr int kGroups = kQueries / kRowsOfGroup;
  /* Registers are given to four warps at once, so that three idle ones beside the one that copies
   * cost nothing: the others get theirs. */
  static constexpr int kThreads = 128 * (kGroups + 1);
  /* Blocks that share a multiprocessor, as far as registers go. */
  static constexpr int kBeside = kGroups == 1 ? 2 : 1;
  static constexpr int kRegistersOfCopies = kGroups == 1 ? 40 : kGroups == 2 ? 24 : 32;
  static constexpr int kRegisters = kGroups == 1 ? 216 : kGroups == 2 ? 240 : 160;
  static constexpr int kScores = kKeys / 2, kSums = kDim / 2;
  /* Two warp groups take turns, so that one multiplies while the other makes weights: up to 12 %
   * faster with heads of 128 elements, 1 to 12 % of 64 (H200). */
  static constexpr bool kTurns = kGroups == 2;

  static constexpr int kMaxStages = 3;
  static constexpr int kBytesQ = kQueries * kDim * 2, kPieceBytes = kKeys * kDim * 2;
  static constexpr int kAllPassBytes = kGroups * 4 * kPassBytes;
  static constexpr int kBarrierBytes = 8 * (1 + 4 * kMaxStages);
  static constexpr int shared_bytes(int stages) {
    return kBytesQ + 2 * stages * kPieceBytes + kAllPassBytes + kBarrierBytes;
  }
  /* What one block may have. */
  static constexpr int kMostBytes = 227 << 10;
  static constexpr int kFitting = (kMostBytes - shared_bytes(0)) / (2 * kPieceBytes);
  static constexpr int kStages = kFitting < kMaxStages ? kFitting : kMaxStages;
  static_assert(kStages >= 1, "a piece does not fit shared memory");

  /* The barriers of one kind of operand: a stage's is full, or empty again. */
  struct Ring {
    uint32_t memory, barriers;
    __device__ __forceinline__ uint32_t at(int stage) const { return memory + stage * kPieceBytes; }
    __device__ __forceinline__ uint32_t full(int stage) const { return barriers + 8 * stage; }
    __device__ __forceinline__ uint32_t empty(int stage) const { return full(kMaxStages + stage); }
  };

  struct Stage {
    int number = 0, parity = 0;
    __device__ __forceinline__ void next(int stages) {
      if (++number < stages) return;
      number = 0;
      parity ^= 1;
    }
  };

  /* All 64-element columns of so many rows of this block's head. */
  template <int kRows>
  __device__ static __forceinline__ void load_rows(uint32_t to, const CUtensorMap& map,
                                                   uint32_t barrier, int row) {
    expect_bytes(barrier, kRows * kDim * 2);
#pragma unroll
    for (int x = 0; x < kDim; x += 64) {
      load(to + x / 64 * kRows * kRow, map, barrier, x, row, blockIdx.y, blockIdx.z);
    }
  }

  __device__ static void copy(const Attention& p, uint32_t q, uint32_t q_full, const Ring& keys,
                              const Ring& values, int query, int pieces) {
    prefetch(p.q);
    prefetch(p.k);
    prefetch(p.v);
    load_rows<kQueries>(q, p.q, q_full, query);
    Stage stage;
    for (int piece = 0; piece < pieces; ++piece, stage.next(p.stages)) {
      wait(keys.empty(stage.number), stage.parity ^ 1);
      load_rows<kKeys>(keys.at(stage.number), p.k, keys.full(stage.number), piece * kKeys);
      wait(values.empty(stage.number), stage.parity ^ 1);
      load_rows<kKeys>(values.at(stage.number), p.v, values.full(stage.number), piece * kKeys);
    }
  }

  /* What a warp group does for its 64 queries. */
  struct Group {
    const Attention& p;
    const uint32_t q;
    const Ring &keys, &values;
    const int query; /* the first of this thread's two, which are 8 apart */
    OnlineSoftmax softmax;
    float scores[kScores], sums[kSums];
    uint32_t weights[kScores / 2];

    __device__ Group(const Attention& p, uint32_t q, const Ring& keys, const Ring& values,
                     int query)
        : p(p), q(q), keys(keys), values(values), query(query), softmax(unit_of(p)) {}

    /* With a bias scores are brought to powers of two before. */
    __device__ static __forceinline__ float unit_of(const Attention& p) {
      return Config::kBias ? 1.0f : p.scale * kLog2E;
    }

    __device__ __forceinline__ void begin_scores(const Stage& stage) {
      wait(keys.full(stage.number), stage.parity);
      begin_products();
#pragma unroll
      for (int deep = 0; deep < kDim / 16; ++deep) {
        Config::Scores::run(
            scores, operand<true>(q + at_depth<true>(kQueries, deep), 0),
            operand<true>(keys.at(stage.number) + at_depth<true>(kKeys, deep), 0), deep);
      }
      commit_products();
    }

    __device__ __forceinline__ void begin_sums(const Stage& stage, int is_more) {
      wait(values.full(stage.number), stage.parity);
      begin_products();
#pragma unroll
      for (int deep = 0; deep < kKeys / 16; ++deep) {
        Config::Weighted::run(
            sums, weights + 4 * deep,
            operand<false>(values.at(stage.number) + at_depth<false>(kDim, deep), kKeys * kRow),
            is_more + deep);
      }
      commit_products();
    }

    /* Scales, adds the bias, hides what may not be seen; then the weights. */
    __device__ __forceinline__ void weigh(int piece) {
      const int column = piece * kKeys + threadIdx.x % 4 * 2;
      if (p.mirrored) {
#pragma unroll
        for (int i = 0; i < kScores; ++i) scores[i] = -scores[i];
      }
      if constexpr (Config::kBias) add_bias(column);
      const int seen[2] = {p.last_seen(query), p.last_seen(query + 8)};
      if ((piece + 1) * kKeys > p.last_seen(query / kRowsOfGroup * kRowsOfGroup)) {
#pragma unroll
        for (int i = 0; i < kScores; ++i) {
          if (column + column_of(i) > seen[row_of(i)]) scores[i] = -INFINITY;
        }
      }
      softmax.next(scores);
    }

    __device__ __forceinline__ void add_bias(int column) {
      const Element* bias = static_cast<const Element*>(p.bias);
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const int own = query + 8 * row;
        const Element* from = bias + p.bias_strides.at(own < p.queries ? own : 0) + column;
#pragma unroll
        for (int i = 2 * row; i < kScores; i += 4) {
          float two[2] = {0.0f, 0.0f};
          const int left = p.keys - column - column_of(i);
          if (p.keys % 2 == 0) {
            /* So is where a row begins. */
            if (left > 0) {
              unpack<Element>(*reinterpret_cast<const uint32_t*>(from + column_of(i)), two);
            }
          } else {
            if (left > 0) two[0] = to_float(from[column_of(i)]);
            if (left > 1) two[1] = to_float(from[column_of(i) + 1]);
          }
          scores[i] = (scores[i] * p.scale + two[0]) * kLog2E;
          scores[i + 1] = (scores[i + 1] * p.scale + two[1]) * kLog2E;
        }
      }
    }

    __device__ __forceinline__ void pack_weights() {
#pragma unroll
      for (int i = 0; i < kScores / 2; ++i) {
        weights[i] = packed<Element>(scores[2 * i], scores[2 * i + 1]);
      }
    }

    __device__ __forceinline__ void run(int pieces) {
      Stage stage, before;
      if (kTurns && threadIdx.x >= 128) give_turn(0);
      begin_scores(stage);
      wait_for_products<0>();
      settle(scores);
      release(keys.empty(stage.number));
      weigh(0);
      pack_weights();
      for (int piece = 1; piece < pieces; ++piece) {
        before = stage;
        stage.next(p.stages);
        if (kTurns) await_turn(threadIdx.x / 128);
        begin_scores(stage);
        begin_sums(before, piece > 1);
        if (kTurns) give_turn(1 - threadIdx.x / 128);
        wait_for_products<1>();
        settle(scores);
        release(keys.empty(stage.number));
        weigh(piece);
        wait_for_products<0>();
        settle(sums);
        release(values.empty(before.number));
#pragma unroll
        for (int i = 0; i < kSums; ++i) sums[i] *= softmax.factor[row_of(i)];
        pack_weights();
      }
      begin_sums(stage, pieces > 1);
      wait_for_products<0>();
      settle(sums);
    }

    __device__ __forceinline__ void finish(unsigned char* pass, int first_query) {
      const float parts[2] = {1.0f / softmax.sum(0), 1.0f / softmax.sum(1)};
      const int64_t pitch = p.output_strides.row;
      Element* to = static_cast<Element*>(p.output) + p.output_strides.at(first_query);
#pragma unroll
      for (int part = 0; part < kDim / 64; ++part) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 16; ++i) {
          const float* two = sums + 32 * part + 2 * i;
          *passed_pair(pass, i) = packed<Element>(two[0] * parts[i % 2], two[1] * parts[i % 2]);
        }
        __syncwarp();
        each_eight(pass, pitch, p.queries - first_query, p.dim_value - 64 * part,
                   [&](int, const uint4* shared, int64_t place) {
                     *reinterpret_cast<uint4*>(to + 64 * part + place) = *shared;
                   });
      }
    }

    static __device__ __forceinline__ void release(uint32_t barrier) {
      if (threadIdx.x % 128 == 0) arrive(barrier);
    }

    static constexpr float kLog2E = 1.4426950408889634f;
  };
};

template <class Config>
__global__ void __launch_bounds__(AttentionSm90<Config>::kThreads, AttentionSm90<Config>::kBeside)
    attend(const __grid_constant__ Attention p) {
  using T = AttentionSm90<Config>;
  /* The swizzle counts from multiples of 1024 bytes. */
  extern __shared__ __align__(1024) unsigned char shared[];
  unsigned char* pass = shared + T::kBytesQ + 2 * p.stages * T::kPieceBytes;
  const uint32_t q = shared_address(shared), q_full = shared_address(pass + T::kAllPassBytes);
  const typename T::Ring keys = {q + T::kBytesQ, q_full + 8};
  const typename T::Ring values = {keys.at(p.stages), keys.barriers + 16 * T::kMaxStages};
  if (threadIdx.x == 0) {
    if (q % 1024 != 0) __trap();
    init_barrier(q_full, 1);
    for (int stage = 0; stage < p.stages; ++stage) {
      init_barrier(keys.full(stage), 1);
      init_barrier(keys.empty(stage), T::kGroups);
      init_barrier(values.full(stage), 1);
      init_barrier(values.empty(stage), T::kGroups);
    }
    publish_barriers();
  }
  __syncthreads();

  /* The longest ones first, where later queries see more. */
  const int query = (gridDim.x - 1 - blockIdx.x) * T::kQueries;
  const int last = query + T::kQueries < p.queries ? query + T::kQueries - 1 : p.queries - 1;
  const int pieces = p.last_seen(last) / T::kKeys + 1;
  const int warp = first_lanes(threadIdx.x / 32), group = warp / 4;
  if (group == T::kGroups) {
    keep_registers<T::kRegistersOfCopies>();
    if (threadIdx.x == 128 * T::kGroups) T::copy(p, q, q_full, keys, values, query, pieces);
    __syncwarp();
    return;
  }
  take_registers<T::kRegisters>();
  wait(q_full, 0);
  const int first = query + 16 * warp;
  typename T::Group own(p, q + group * kRowsOfGroup * kRow, keys, values,
                        first + threadIdx.x % 32 / 4);
  own.run(pieces);
  own.finish(pass + warp * kPassBytes, first);
}

}  // namespace hopper
}  // namespace collage

#endif /* COLLAGE_ATTENTION_SM90_KERNEL_H_ */
