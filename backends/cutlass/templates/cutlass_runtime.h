/* What the entry points of CUTLASS partitions hand to the runtime: data only, in plain C. */
#ifndef COLLAGE_CUTLASS_RUNTIME_H_
#define COLLAGE_CUTLASS_RUNTIME_H_

#include <collage_ffi.h>

#include "collage_cutlass.h"

#define COLLAGE_CUTLASS_MAX_INPUTS 8

/* A tensor by its place among an entry's arguments. */
typedef struct collage_cutlass_tensor {
  int argument;
  int64_t num_elements;
  int bits;
} collage_cutlass_tensor;

typedef struct collage_cutlass_entry {
  const char* symbol;
  collage_cutlass_kernel kernel;
  const int64_t* sizes;
  const float* scalars;
  int num_arguments;
  int num_inputs;
  collage_cutlass_tensor inputs[COLLAGE_CUTLASS_MAX_INPUTS];
  collage_cutlass_tensor output;
} collage_cutlass_entry;

#ifdef __cplusplus
extern "C" {
#endif

/* Launches the entry's kernel on TVM's stream of its result's device. */
__attribute__((visibility("hidden"))) int collage_cutlass_run(const collage_cutlass_entry* entry,
                                                              size_t workspace_bytes,
                                                              const TVMFFIAny* args,
                                                              int32_t num_args);

/* Called while the library is loaded: the first workspace is made large enough for all. */
__attribute__((visibility("hidden"))) void collage_cutlass_reserve(size_t workspace_bytes);

#ifdef __cplusplus
}
#endif

#endif /* COLLAGE_CUTLASS_RUNTIME_H_ */
