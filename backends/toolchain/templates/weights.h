/* The list of a module's weights in files, as generated code hands it to weights.cc. */
#ifndef COLLAGE_WEIGHTS_H_
#define COLLAGE_WEIGHTS_H_

#include <dlpack/dlpack.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  const void* data;
  DLDataType type;
  int32_t rank;
  const int64_t* shape;
} collage_weight_tensor;

extern const collage_weight_tensor collage_weights[] __attribute__((visibility("hidden")));
extern const int32_t collage_num_weights __attribute__((visibility("hidden")));

#ifdef __cplusplus
}
#endif
#endif /* COLLAGE_WEIGHTS_H_ */
