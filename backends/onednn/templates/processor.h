// What the processor has.
#pragma once

#include <unistd.h>

#include <cstdint>

#include <oneapi/dnnl/dnnl.h>

namespace collage_onednn {

inline bool has_isa(dnnl_cpu_isa_t wanted) {
  const auto bits = static_cast<unsigned>(wanted);
  return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & bits) == bits;
}

// Of one core, as the system tells.
inline int64_t second_cache_bytes() {
  const long told = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return told > 0 ? told : 256 << 10;
}

}  // namespace collage_onednn
