/* Tensors of a region, as generated stubs hand them to the runtime of a library. */
#ifndef COLLAGE_REGION_H_
#define COLLAGE_REGION_H_

#include "collage_ffi.h"

#define COLLAGE_REGION_MAX_RANK 8

/* A dense tensor in host memory, as a region was compiled for it. */
typedef struct {
  DLDataType dtype;
  int64_t rank;
  int64_t shape[COLLAGE_REGION_MAX_RANK];
} collage_region_tensor;

#endif /* COLLAGE_REGION_H_ */
