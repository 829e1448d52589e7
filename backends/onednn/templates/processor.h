// What the processor has.
#pragma once

#include <unistd.h>

#include <oneapi/dnnl/dnnl.hpp>

namespace collage_onednn {

inline bool has_isa(dnnl::cpu_isa wanted) {
  const auto bits = static_cast<unsigned>(wanted);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
}

// Of one core, as the system tells.
inline dnnl::memory::dim second_cache_bytes() {
  const long told = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return told > 0 ? told : 256 << 10;
}

}  // namespace collage_onednn
