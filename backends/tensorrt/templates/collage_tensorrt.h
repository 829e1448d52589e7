/* An engine as the generated stubs hand it to the runtime, which is either of
 *
 *   runtime_shim.cc    TensorRT's own C++ runtime, where its headers were found;
 *   runtime_python.c   the runtime of TensorRT's Python package, in the process that runs Python.
 */
#ifndef COLLAGE_TENSORRT_H_
#define COLLAGE_TENSORRT_H_

#include <stdint.h>

#include "collage_ffi.h"

typedef struct {
  int64_t num_elements;
  int bits; /* of one element */
} collage_tensorrt_tensor;

typedef struct {
  const char* symbol;
  const char* digest; /* equal for equal engines */
  const void* plan;   /* the serialized engine; its tensors are input0, ..., output0, ... */
  int64_t size;       /* bytes of the plan */
  int num_inputs;
  int num_outputs;
  const collage_tensorrt_tensor* tensors; /* inputs, then outputs */
  void* state;                            /* the runtime's own */
} collage_tensorrt_engine;

/* Run an engine on TVM's current stream; the arguments are the inputs, then the outputs. */
COLLAGE_EXTERN_C int collage_tensorrt_run(collage_tensorrt_engine* engine, const TVMFFIAny* args,
                                          int32_t num_args);

/* Give back what running the engine took. */
COLLAGE_EXTERN_C void collage_tensorrt_release(collage_tensorrt_engine* engine);

#endif /* COLLAGE_TENSORRT_H_ */
