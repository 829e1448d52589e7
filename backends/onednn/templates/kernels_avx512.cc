// All that is done in vectors of sixteen, of AVX-512.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "vectors/lanes_avx512.h"
#include "vectors/vectors.h"
#include "winograd/planes.h"
#include "winograd/weights.h"

#ifdef COLLAGE_X86
#define COLLAGE_LANES COLLAGE_AVX512
#define COLLAGE_ONCE __attribute__((noinline))  // one copy for all kinds of tiles

namespace collage_onednn::avx512 {
#include "vectors/exponential.h"
#include "vectors/functions.h"
#include "vectors/softmax_rows.h"
#include "vectors/chains.h"
#include "vectors/chains_avx512.h"
#include "vectors/bytes_avx512.h"
#include "vectors/depthwise_avx512.h"
}  // namespace collage_onednn::avx512

namespace collage_onednn::winograd::avx512 {
using namespace collage_onednn::avx512;
#include "winograd/transforms.h"
#include "winograd/products.h"
#include "winograd/tiles.h"
#include "winograd/stages.h"
}  // namespace collage_onednn::winograd::avx512
#endif
