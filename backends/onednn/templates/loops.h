// Loops of ours on plain numbers, for what no primitive does: compiled apart from the regions, whose
// code runs once.
#pragma once

#include <cstdint>
#include <vector>

#include "linkage.h"
#include "vectors/vectors.h"

namespace collage_onednn {

// strided.h

// Neighbouring axes of a tensor without gaps that can be counted through as one.
struct Run {
  int64_t extent;
  int64_t stride;  // of another tensor: what one step is there
};

// `rows` of results of a function of two numbers, in the order of Binary in graph.py. The second
// operand of each row is where `outer` says, and goes on as `inner` does.
COLLAGE_WEAK void binary_rows(int64_t algorithm, const float* a, const float* b, int64_t rows,
                              const std::vector<Run>& outer, Run inner, float* result);

enum class Reduced : int64_t { mean, sum, max, min };  // same order as Reduction in graph.py

struct Extents {  // of three axes, the second of which is reduced over
  int64_t outer, count, width;
};

constexpr int64_t kMostColumns = 512;  // that are reduced side by side

// In so many parts, whose own results `partial` holds where there are several.
COLLAGE_WEAK void reduce_middle(Reduced how, const float* x, const Extents& extents, int64_t parts,
                                float* partial, float* result);

// scaled_weights.h

// Which input channel each element of packed weights belongs to; elements that lie side by side and
// share it are one entry.
struct Channels {
  int64_t width;  // elements of an entry
  std::vector<int32_t> entries;
};

COLLAGE_WEAK void scale_channels(const Channels& channels, const float* given, const float* scale,
                                 bool shared, float* made);

// operators/softmax.h

// From the shares of a softmax, row by row.
COLLAGE_WEAK void logarithms_of_rows(const float* x, const float* shares, float* y, int64_t rows,
                                     int64_t count);

// operators/chains.h

// All rows, in bfloat16 if `rounded`.
COLLAGE_WEAK void rows_chained(const Chain& chain, int64_t rows, bool rounded);

// operators/depthwise.h

// All pictures; each thread has one of the `rooms`.
COLLAGE_WEAK void depthwise(const Depthwise& s, int64_t images, int64_t blocks,
                            const DepthwiseData& data, float* rooms);

// operators/quantized.h

struct Bytes {
  uint8_t* bytes;
  float* step;
  int32_t* point;  // where zero is
  float* sums;     // what the bytes of each row stand for, added up
};

// Over the range of x, unless step and point are known.
COLLAGE_WEAK void rows_to_bytes(const float* x, int64_t rows, int64_t width,
                                const std::vector<float>& known, const Bytes& made);

COLLAGE_WEAK void bytes_to_floats(const uint8_t* bytes, int64_t count, float step, int32_t point,
                                  float* result);

// operators/select.h

// A channel of the result: which input it is of, and which channel there.
struct Pick {
  int64_t input, channel;
};

// `data`: the inputs, of so many channels each, then the result; in planes, or channels last.
COLLAGE_WEAK void pick_planes(const std::vector<Pick>& picks, const std::vector<int64_t>& widths,
                              int64_t samples, int64_t pixels, const std::vector<void*>& data);
COLLAGE_WEAK void pick_pixels(const std::vector<Pick>& picks, const std::vector<int64_t>& widths,
                              int64_t samples, int64_t pixels, const std::vector<void*>& data);

// operators/interleave.h

struct Phases {
  int64_t samples, channels, groups;  // of the result
  int64_t width;                      // channels of all phases
  int64_t stride[3], cut[3], from[3], to[3];
  bool by_planes;
};

COLLAGE_WEAK void interleave_phases(const Phases& phases, const float* x, float* y);

}  // namespace collage_onednn
