// Convolutions in tiles, in vectors of sixteen.
#include "../vectors/lanes_avx512.h"
#include "planes.h"
#include "weights.h"

#ifdef COLLAGE_AVX512
#define COLLAGE_LANES COLLAGE_AVX512
#define COLLAGE_ONCE __attribute__((noinline))

namespace collage_onednn::winograd::avx512 {
using namespace collage_onednn::avx512;
#include "transforms.h"
#include "products.h"
#include "tiles.h"
#include "stages.h"

COLLAGE_KERNELS { return find_kernels(s, rows); }

}  // namespace collage_onednn::winograd::avx512
#endif
