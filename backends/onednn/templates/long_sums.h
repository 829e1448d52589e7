// Which convolutions add up so many products that the layout decides how exact they are.
#pragma once

#include <algorithm>

#include "layouts.h"
#include "processor.h"

namespace collage_onednn {

// Whether a convolution adds up so many products that its kernel for channels last, which adds them
// one by one, is three to seven times as far off as the one for blocks of channels, which adds up
// each block from zero. With AVX2 the former is the better one. Blocks took 0.68 to 1.10 of the time
// here; they take a quarter to a third more on small pictures and with strides, which are left.
// Along one axis they took 0.75 to 1.04 of the time whatever the stride, of groups aside.
inline bool sums_long(const dims& weights, const dims& out, const dims& strides) {
  constexpr memory::dim kLong = 1024, kVeryLong = 2048, kManyPixels = 1024, kWide = 64;
  constexpr memory::dim kLongLine = 512;
  if (!has_isa(dnnl_cpu_isa_avx512_core)) return false;
  const size_t axes = strides.size(), groups = weights.size() - axes - 2;
  memory::dim taps = 1, pixels = 1;
  for (size_t i = 0; i < axes; ++i) {
    taps *= weights[groups + 2 + i];
    pixels *= out[2 + i];
  }
  const memory::dim terms = taps * weights[groups + 1];
  if (terms >= 2 * kVeryLong) return true;
  if (axes == 1 && groups == 0 && taps > 1) return terms >= kLongLine;
  if (taps == 1 || std::any_of(strides.begin(), strides.end(), [](memory::dim s) { return s > 1; }))
    return false;
  return terms >= kVeryLong ||
         (terms >= kLong && pixels >= kManyPixels && weights[groups] >= kWide);
}

}  // namespace collage_onednn
