/* A region as the generated stubs hand it to the runtime. */
#ifndef COLLAGE_OPENVINO_H_
#define COLLAGE_OPENVINO_H_

#include <openvino/c/openvino.h>

#include "collage_region.h"

typedef struct {
  ov_element_type_e type;
  collage_region_tensor described;
} collage_openvino_tensor;

typedef struct {
  const char* symbol;
  const char* library; /* of OpenVINO's C API; a file beside the bundle's other libraries */
  const char* model; /* its text in OpenVINO's IR, whose constants stand in the weights */
  int64_t model_size;
  const void* weights;
  int64_t weights_size;
  const ov_property_t* properties;
  int num_properties;
  int num_inputs;
  int num_outputs;
  const collage_openvino_tensor* tensors; /* inputs, then outputs */
  void* state;                            /* the runtime's own; NULL until the first call */
} collage_openvino_region;

/* Run a region; the arguments are the inputs, then the outputs. What it takes is given back when the
 * library is closed. */
COLLAGE_EXTERN_C int collage_openvino_run(collage_openvino_region* region, const TVMFFIAny* args,
                                          int32_t num_args);

#endif /* COLLAGE_OPENVINO_H_ */
