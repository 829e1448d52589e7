/* Runs engines through TensorRT's Python package: a global function that Python registers takes the
 * engine, the stream and the addresses of the tensors, all as plain numbers. */
#include <string.h>
#include <tvm/ffi/extra/c_env_api.h>

#include "collage_tensorrt.h"

static const char kRun[] = "collage.tensorrt.run";

static TVMFFIAny number(int64_t value) {
  TVMFFIAny any;
  memset(&any, 0, sizeof(any));
  any.type_index = kTVMFFIInt;
  any.v_int64 = value;
  return any;
}

/* The address of a tensor in device memory, or 0 with an error raised. */
static int64_t address_of(const TVMFFIAny* args, int index, const collage_tensorrt_tensor* wanted) {
  const DLTensor* tensor = collage_tensor(&args[index]);
  if (tensor == NULL) {
    collage_fail("TypeError", "argument %d is not a tensor", index);
  } else if (tensor->device.device_type != kDLCUDA) {
    collage_fail("TypeError", "argument %d is not in the memory of a CUDA device", index);
  } else if (tensor->dtype.bits * tensor->dtype.lanes != wanted->bits) {
    collage_fail("TypeError", "argument %d has elements of %d bits, expected %d", index,
                 tensor->dtype.bits * tensor->dtype.lanes, wanted->bits);
  } else if (!collage_is_contiguous(tensor)) {
    collage_fail("ValueError", "argument %d is not contiguous", index);
  } else if (collage_num_elements(tensor) != wanted->num_elements) {
    collage_fail("ValueError", "argument %d has %lld elements, expected %lld", index,
                 (long long)collage_num_elements(tensor), (long long)wanted->num_elements);
  } else {
    return (int64_t)(intptr_t)collage_data(tensor);
  }
  return 0;
}

int collage_tensorrt_run(collage_tensorrt_engine* engine, const TVMFFIAny* args, int32_t num_args) {
  enum { kFixed = 5 };
  const int count = engine->num_inputs + engine->num_outputs;
  if (num_args != count)
    return collage_fail("TypeError", "%s: expected %d arguments, got %d", engine->symbol, count,
                        (int)num_args);
  if (engine->state == NULL) {
    const TVMFFIByteArray name = {kRun, sizeof(kRun) - 1};
    if (TVMFFIFunctionGetGlobal(&name, &engine->state) != 0) return -1;
    if (engine->state == NULL)
      return collage_fail("RuntimeError",
                          "%s is an engine that runs through TensorRT's Python package: load the "
                          "bundle with collage.load, which registers the function %s",
                          engine->symbol, kRun);
  }
  TVMFFIAny packed[kFixed + count];
  for (int i = 0; i < count; ++i) {
    const int64_t address = address_of(args, i, &engine->tensors[i]);
    if (address == 0) return -1;
    packed[kFixed + i] = number(address);
  }
  const int device = collage_tensor(&args[0])->device.device_id;
  packed[0] = number(0);
  packed[0].type_index = kTVMFFIRawStr;
  packed[0].v_c_str = engine->digest;
  packed[1] = number((int64_t)(intptr_t)engine->plan);
  packed[2] = number(engine->size);
  packed[3] = number(device);
  packed[4] = number((int64_t)(intptr_t)TVMFFIEnvGetStream(kDLCUDA, device));
  TVMFFIAny result = number(0);
  result.type_index = kTVMFFINone;
  return TVMFFIFunctionCall(engine->state, packed, kFixed + count, &result);
}

void collage_tensorrt_release(collage_tensorrt_engine* engine) {
  /* The engines belong to Python, which may be gone by now; this is only the function's handle. */
  engine->state = NULL;
}
