/* Runs regions through OpenVINO's C API: compiled at the first call, one request each that is used
 * again, on the caller's memory. */
#define _GNU_SOURCE /* dladdr */
#include <pthread.h>

#include "collage_openvino.h"
#include "denormal_flags.h"
#include "region_runtime.h"

#define COLLAGE_HIDDEN __attribute__((weak, visibility("hidden")))

/* Functions of OpenVINO's, looked up when the first region is run. Linked against, it would look for
 * its plugins where this library has it from, which while measuring is a folder of links that does
 * not last; opened by the file that a link stands for, it looks beside that. */
#define FUNCTIONS(X)                          \
  X(ov_get_last_err_msg)                      \
  X(ov_get_error_info)                        \
  X(ov_tensor_create_from_host_ptr)           \
  X(ov_tensor_free)                           \
  X(ov_core_create)                           \
  X(ov_core_free)                             \
  X(ov_core_read_model_from_memory_buffer)    \
  X(ov_core_compile_model_props)              \
  X(ov_model_free)                            \
  X(ov_compiled_model_create_infer_request)   \
  X(ov_compiled_model_free)                   \
  X(ov_infer_request_set_input_tensor_by_index)  \
  X(ov_infer_request_set_output_tensor_by_index) \
  X(ov_infer_request_infer)                   \
  X(ov_infer_request_free)

#define DECLARE(name) __typeof__(name)* name##_;
static struct {
  FUNCTIONS(DECLARE)
} ov;

typedef struct region_state {
  struct region_state* next; /* of this library */
  pthread_mutex_t lock;      /* a request runs one call at a time */
  ov_tensor_t* weights;
  ov_model_t* model;
  ov_compiled_model_t* compiled;
  ov_infer_request_t* request;
  void** bound; /* by argument, the memory that the request knows of */
} region_state;

/* What OpenVINO holds for all regions of this library. */
static pthread_mutex_t creation = PTHREAD_MUTEX_INITIALIZER;
static ov_core_t* core = NULL;
static region_state* states = NULL;

static int fail(const collage_openvino_region* region, const char* what, ov_status_e status) {
  const char* said = ov.ov_get_last_err_msg_();
  if (said == NULL || *said == 0) said = ov.ov_get_error_info_(status);
  return collage_fail("RuntimeError", "openvino region '%s': %s: %s", region->symbol, what, said);
}

#define OV(what, call)                                              \
  do {                                                              \
    ov_status_e status_ = (call);                                   \
    if (status_ != OK) return fail(region, what, status_);          \
  } while (0)

/* A tensor over memory of someone else's. */
static ov_status_e tensor_over(const collage_openvino_tensor* of, void* data, ov_tensor_t** made) {
  ov_shape_t shape = {of->described.rank, (int64_t*)of->described.shape};
  return ov.ov_tensor_create_from_host_ptr_(of->type, shape, data, made);
}

static int open_library(const collage_openvino_region* region) {
  void* library = collage_region_library(region->symbol, region->library, &ov);
  if (library == NULL) return -1;
#define LOOK_UP(name)                                                                         \
  ov.name##_ = (__typeof__(ov.name##_))dlsym(library, #name);                                 \
  if (ov.name##_ == NULL)                                                                     \
    return collage_fail("RuntimeError", "openvino region '%s': %s", region->symbol, dlerror());
  FUNCTIONS(LOOK_UP)
  return 0;
}

static int compile(const collage_openvino_region* region, region_state* state) {
  ov_property_t properties[16];
  char threads[16];
  int count = region->num_properties;
  memcpy(properties, region->properties, sizeof(ov_property_t) * (size_t)count);
  snprintf(threads, sizeof(threads), "%d", collage_num_threads());
  properties[count].key = "INFERENCE_NUM_THREADS";
  properties[count++].value = threads;

  if (core == NULL && open_library(region) != 0) return -1;
  /* The constants are read where they lie, in the library that was mapped. */
  collage_openvino_tensor bytes = {U8, {{kDLUInt, 8, 1}, 1, {region->weights_size}}};
  if (region->weights_size > 0)
    OV("its constants", tensor_over(&bytes, (void*)region->weights, &state->weights));
  if (core == NULL) OV("no OpenVINO", ov.ov_core_create_(&core));
  OV("its model", ov.ov_core_read_model_from_memory_buffer_(core, region->model, region->model_size,
                                                        state->weights, &state->model));
  OV("cannot be compiled", ov.ov_core_compile_model_props_(core, state->model, "CPU", count, properties,
                                                       &state->compiled));
  OV("no request", ov.ov_compiled_model_create_infer_request_(state->compiled, &state->request));
  return 0;
}

static void drop(region_state* state) {
  if (state->request != NULL) ov.ov_infer_request_free_(state->request);
  if (state->compiled != NULL) ov.ov_compiled_model_free_(state->compiled);
  if (state->model != NULL) ov.ov_model_free_(state->model);
  if (state->weights != NULL) ov.ov_tensor_free_(state->weights);
  pthread_mutex_destroy(&state->lock);
  free(state->bound);
  free(state);
}

/* Measuring loads and unloads many libraries in one process. */
static void release(void) {
  while (states != NULL) {
    region_state* state = states;
    states = state->next;
    drop(state);
  }
  if (core != NULL) ov.ov_core_free_(core);
  core = NULL;
}

static region_state* make_state(const collage_openvino_region* region) {
  const size_t count = (size_t)(region->num_inputs + region->num_outputs);
  region_state* state = calloc(1, sizeof(region_state));
  void** bound = calloc(count, sizeof(void*));
  if (state == NULL || bound == NULL) {
    free(state);
    free(bound);
    collage_fail("MemoryError", "openvino region '%s': no memory", region->symbol);
    return NULL;
  }
  state->bound = bound;
  pthread_mutex_init(&state->lock, NULL);
  if (compile(region, state) != 0) {
    drop(state);
    return NULL;
  }
  /* Called when this library is closed, and at exit before OpenVINO's own, which was loaded by now
   * and takes apart what a destructor of this library would still need. */
  if (states == NULL) atexit(release);
  state->next = states;
  states = state;
  return state;
}

static region_state* state_of(collage_openvino_region* region) {
  pthread_mutex_lock(&creation);
  if (region->state == NULL) region->state = make_state(region);
  region_state* state = region->state;
  pthread_mutex_unlock(&creation);
  return state;
}

/* Tell the request of an argument's memory, unless it is where it was at the last call. */
static int bind(const collage_openvino_region* region, region_state* state, int index, void* data) {
  if (state->bound[index] == data) return 0;
  ov_tensor_t* tensor = NULL;
  OV("an argument", tensor_over(&region->tensors[index], data, &tensor));
  const int output = index - region->num_inputs;
  ov_status_e status =
      output < 0 ? ov.ov_infer_request_set_input_tensor_by_index_(state->request, index, tensor)
                 : ov.ov_infer_request_set_output_tensor_by_index_(state->request, output, tensor);
  ov.ov_tensor_free_(tensor); /* the request has its own share */
  OV("an argument", status);
  state->bound[index] = data;
  return 0;
}

static int infer(const collage_openvino_region* region, region_state* state,
                 const TVMFFIAny* args) {
  for (int i = 0; i < region->num_inputs + region->num_outputs; ++i) {
    const DLTensor* tensor =
        collage_region_argument(region->symbol, args, i, &region->tensors[i].described);
    if (tensor == NULL || bind(region, state, i, collage_data(tensor)) != 0) return -1;
  }
  OV("failed", ov.ov_infer_request_infer_(state->request));
  return 0;
}

COLLAGE_HIDDEN int collage_openvino_run(collage_openvino_region* region, const TVMFFIAny* args,
                                        int32_t num_args) {
  if (num_args != region->num_inputs + region->num_outputs)
    return collage_fail("TypeError", "%s: expected %d arguments, got %d", region->symbol,
                        region->num_inputs + region->num_outputs, (int)num_args);
  /* OpenVINO leaves the thread that compiles or calls as it left its own threads. */
  const control before = get_control() & flushing;
  region_state* state = state_of(region);
  int failed = -1;
  if (state != NULL) {
    pthread_mutex_lock(&state->lock);
    failed = infer(region, state, args);
    pthread_mutex_unlock(&state->lock);
  }
  take_flags(before);
  return failed;
}
