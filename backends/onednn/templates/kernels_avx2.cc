// All that is done in vectors of eight, of AVX2.
#include <cmath>
#include <initializer_list>
#include <limits>

#include "vectors/lanes_avx2.h"
#include "vectors/vectors.h"
#include "winograd/planes.h"
#include "winograd/weights.h"

#ifdef COLLAGE_X86
#define COLLAGE_LANES COLLAGE_AVX2
#define COLLAGE_ONCE __attribute__((noinline))  // one copy for all kinds of tiles

namespace collage_onednn::avx2 {
#include "vectors/exponential.h"
#include "vectors/functions.h"
#include "vectors/softmax_rows.h"
#include "vectors/chains.h"
}  // namespace collage_onednn::avx2

namespace collage_onednn::winograd::avx2 {
using namespace collage_onednn::avx2;
#include "winograd/transforms.h"
#include "winograd/products.h"
#include "winograd/tiles.h"
#include "winograd/stages.h"
}  // namespace collage_onednn::winograd::avx2
#endif
