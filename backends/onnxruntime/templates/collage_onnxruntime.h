/* A region as the generated stubs hand it to the runtime. */
#ifndef COLLAGE_ONNXRUNTIME_H_
#define COLLAGE_ONNXRUNTIME_H_

#include "collage_region.h"

typedef struct {
  int32_t type; /* of ONNX's TensorProto, and of ONNXTensorElementDataType */
  collage_region_tensor described;
} collage_onnxruntime_tensor;

typedef struct {
  const char* key;
  const char* value;
} collage_onnxruntime_setting;

typedef struct {
  const char* symbol;
  const char* library; /* onnxruntime's; a file beside the bundle's other libraries */
  const char* model;   /* ONNX, whose large constants stand in the weights */
  int64_t model_size;
  const char* weights;
  int64_t weights_size;
  const char* weights_name; /* the file that the model says they are in */
  const collage_onnxruntime_setting* settings;
  int num_settings;
  int level; /* of optimization */
  int num_inputs;
  int num_outputs;
  const collage_onnxruntime_tensor* tensors; /* inputs, then outputs */
  void* state;                               /* the runtime's own; NULL until the first call */
} collage_onnxruntime_region;

/* Run a region; the arguments are the inputs, then the outputs. What it takes is given back when the
 * library is closed. */
COLLAGE_EXTERN_C int collage_onnxruntime_run(collage_onnxruntime_region* region,
                                             const TVMFFIAny* args, int32_t num_args);

#endif /* COLLAGE_ONNXRUNTIME_H_ */
