// Convolutions in tiles, in vectors of eight.
#include "../vectors/lanes_avx2.h"
#include "planes.h"
#include "weights.h"

#ifdef COLLAGE_AVX2
#define COLLAGE_LANES COLLAGE_AVX2
#define COLLAGE_ONCE __attribute__((noinline))

namespace collage_onednn::winograd::avx2 {
using namespace collage_onednn::avx2;
#include "transforms.h"
#include "products.h"
#include "tiles.h"
#include "stages.h"

COLLAGE_KERNELS { return find_kernels(s, rows); }

}  // namespace collage_onednn::winograd::avx2
#endif
