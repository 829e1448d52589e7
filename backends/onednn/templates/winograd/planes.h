// Which planes of a volume a batch reads, and where they lie at their points: one place for each,
// however many taps read it. The rows of a tap are side by side, for its planes are in order.
#pragma once

#include "winograd.h"

namespace collage_onednn::winograd {

// Along so many planes of the result. Planes that lie a step apart share a row of slots.
inline Reading reading_of(const Planes& p, int64_t planes) {
  Reading reading;
  reading.firsts.resize(static_cast<size_t>(p.taps));
  for (int64_t phase = 0; phase < p.step; ++phase) {
    const auto start = static_cast<int64_t>(reading.offsets.size());
    int64_t lowest = 0, slots = 0;
    for (int64_t tap = 0; tap < p.taps; ++tap) {
      const int64_t offset = tap * p.dilation - p.padding, steps = floor_of(offset, p.step);
      if (offset - steps * p.step != phase) continue;
      if (slots == 0) lowest = steps;
      slots = steps - lowest + planes;
      reading.firsts[static_cast<size_t>(tap)] = start + steps - lowest;
    }
    for (int64_t i = 0; i < slots; ++i) reading.offsets.push_back((lowest + i) * p.step + phase);
  }
  for (size_t slot = 0; slot < reading.offsets.size(); ++slot)
    for (const int64_t first : reading.firsts) {
      const int64_t plane = static_cast<int64_t>(slot) - first;
      if (plane < 0 || plane >= planes) continue;
      reading.slots.push_back(static_cast<int64_t>(slot));
      break;
    }
  return reading;
}

}  // namespace collage_onednn::winograd
