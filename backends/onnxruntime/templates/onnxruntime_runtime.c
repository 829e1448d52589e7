/* Runs regions through onnxruntime's C API: a session each, made at the first call, on the caller's
 * memory. Any number of threads may run one session at a time. */
#define _GNU_SOURCE /* dladdr */
#include <pthread.h>
#include <stdlib.h>

#include "collage_onnxruntime.h"
#include "denormal_flags.h"
#include "ort_functions.h"
#include "region_runtime.h"

#define COLLAGE_HIDDEN __attribute__((weak, visibility("hidden")))

#define DECLARE(place, result, name, arguments) result(*name) arguments;
static struct {
  ORT_FUNCTIONS(DECLARE)
} ort;

typedef struct region_state {
  struct region_state* next; /* of this library */
  OrtSession* session;
  const char** names; /* of inputs, then outputs */
  char* text;         /* that they stand in */
} region_state;

/* What onnxruntime holds for all regions of this library. */
static pthread_mutex_t creation = PTHREAD_MUTEX_INITIALIZER;
static OrtEnv* environment = NULL;
static OrtMemoryInfo* host = NULL;
static region_state* states = NULL;

static int fail(const collage_onnxruntime_region* region, const char* what, OrtStatus* status) {
  const int result = collage_fail("RuntimeError", "onnxruntime region '%s': %s: %s",
                                  region->symbol, what, ort.GetErrorMessage(status));
  ort.ReleaseStatus(status);
  return result;
}

#define ORT(what, call)                                                 \
  do {                                                                  \
    OrtStatus* status_ = (call);                                        \
    if (status_ != NULL) return fail(region, what, status_);            \
  } while (0)

static int open_library(const collage_onnxruntime_region* region) {
  /* It tells its maker what it is used for unless this is set when it is loaded (docs/Privacy.md);
   * who has chosen keeps that. */
  setenv("ORT_DISABLE_TELEMETRY", "1", 0);
  void* library = collage_region_library(region->symbol, region->library, &ort);
  if (library == NULL) return -1;
  const OrtApiBase* (*get_base)(void) = (const OrtApiBase* (*)(void))dlsym(library, "OrtGetApiBase");
  const void* const* table = get_base == NULL ? NULL : get_base()->GetApi(ORT_API_VERSION);
  if (table == NULL)
    return collage_fail("RuntimeError", "onnxruntime region '%s': %s has no API of version %d",
                        region->symbol, region->library, ORT_API_VERSION);
#define LOOK_UP(place, result, name, arguments) ort.name = (result(*) arguments)table[place];
  ORT_FUNCTIONS(LOOK_UP)
  ORT("no environment", ort.CreateEnv(ORT_LOGGING_LEVEL_ERROR, "collage", &environment));
  ORT("no memory", ort.CreateCpuMemoryInfo(ORT_DEVICE_ALLOCATOR, ORT_MEM_TYPE_DEFAULT, &host));
  return 0;
}

static int set_up(const collage_onnxruntime_region* region, OrtSessionOptions* options) {
  char* const data[] = {(char*)region->weights};
  const size_t size = (size_t)region->weights_size;
  ORT("threads", ort.SetIntraOpNumThreads(options, collage_num_threads()));
  ORT("threads", ort.SetInterOpNumThreads(options, 1));
  ORT("a setting", ort.SetSessionGraphOptimizationLevel(options, region->level));
  ORT("a setting", ort.SetSessionLogSeverityLevel(options, ORT_LOGGING_LEVEL_ERROR));
  for (int i = 0; i < region->num_settings; ++i)
    ORT(region->settings[i].key, ort.AddSessionConfigEntry(options, region->settings[i].key,
                                                           region->settings[i].value));
  ORT("its constants", ort.AddExternalInitializersFromFilesInMemory(options, &region->weights_name,
                                                                    data, &size, 1));
  return 0;
}

static int make_session(const collage_onnxruntime_region* region, region_state* state) {
  OrtSessionOptions* options = NULL;
  if (environment == NULL && open_library(region) != 0) return -1;
  ORT("no options", ort.CreateSessionOptions(&options));
  int failed = set_up(region, options);
  if (failed == 0) {
    OrtStatus* status = ort.CreateSessionFromArray(environment, region->model,
                                                   (size_t)region->model_size, options,
                                                   &state->session);
    if (status != NULL) failed = fail(region, "no session", status);
  }
  ort.ReleaseSessionOptions(options);
  return failed;
}

static void drop(region_state* state) {
  if (state->session != NULL) ort.ReleaseSession(state->session);
  free(state->names);
  free(state->text);
  free(state);
}

/* Measuring loads and unloads many libraries in one process. */
static void release(void) {
  while (states != NULL) {
    region_state* state = states;
    states = state->next;
    drop(state);
  }
  if (host != NULL) ort.ReleaseMemoryInfo(host);
  if (environment != NULL) ort.ReleaseEnv(environment);
  host = NULL;
  environment = NULL;
}

enum { NAME_SIZE = 12 };

static region_state* make_state(const collage_onnxruntime_region* region) {
  const int count = region->num_inputs + region->num_outputs;
  region_state* state = calloc(1, sizeof(region_state));
  if (state != NULL) {
    state->names = calloc((size_t)count, sizeof(char*));
    state->text = calloc((size_t)count, NAME_SIZE);
  }
  if (state == NULL || state->names == NULL || state->text == NULL) {
    if (state != NULL) drop(state);
    collage_fail("MemoryError", "onnxruntime region '%s': no memory", region->symbol);
    return NULL;
  }
  for (int i = 0; i < count; ++i) {
    const int output = i - region->num_inputs;
    char* name = state->text + (size_t)i * NAME_SIZE;
    snprintf(name, NAME_SIZE, output < 0 ? "i%d" : "o%d", output < 0 ? i : output);
    state->names[i] = name;
  }
  if (make_session(region, state) != 0) {
    drop(state);
    return NULL;
  }
  /* Called when this library is closed, and at exit before onnxruntime's own destructors, since that
   * was loaded by now. */
  if (states == NULL) atexit(release);
  state->next = states;
  states = state;
  return state;
}

static region_state* state_of(collage_onnxruntime_region* region) {
  region_state* state = __atomic_load_n(&region->state, __ATOMIC_ACQUIRE);
  if (state != NULL) return state;
  pthread_mutex_lock(&creation);
  if (region->state == NULL)
    __atomic_store_n(&region->state, make_state(region), __ATOMIC_RELEASE);
  state = region->state;
  pthread_mutex_unlock(&creation);
  return state;
}

/* Values over the arguments' memory; as many as were made. */
static int wrap(const collage_onnxruntime_region* region, const TVMFFIAny* args, OrtValue** values) {
  for (int i = 0; i < region->num_inputs + region->num_outputs; ++i) {
    const collage_onnxruntime_tensor* wanted = &region->tensors[i];
    const DLTensor* tensor =
        collage_region_argument(region->symbol, args, i, &wanted->described);
    if (tensor == NULL) return -1;
    const size_t bytes = (size_t)collage_num_elements(tensor) * ((tensor->dtype.bits + 7) / 8);
    ORT("an argument", ort.CreateTensorWithDataAsOrtValue(
                           host, collage_data(tensor), bytes, wanted->described.shape,
                           (size_t)wanted->described.rank, wanted->type, &values[i]));
  }
  return 0;
}

static int run(const collage_onnxruntime_region* region, const region_state* state,
               const TVMFFIAny* args, OrtValue** values) {
  if (wrap(region, args, values) != 0) return -1;
  const size_t inputs = (size_t)region->num_inputs;
  ORT("failed", ort.Run(state->session, NULL, state->names, (const OrtValue* const*)values, inputs,
                        state->names + inputs, (size_t)region->num_outputs, values + inputs));
  return 0;
}

COLLAGE_HIDDEN int collage_onnxruntime_run(collage_onnxruntime_region* region,
                                           const TVMFFIAny* args, int32_t num_args) {
  const int count = region->num_inputs + region->num_outputs;
  if (num_args != count)
    return collage_fail("TypeError", "%s: expected %d arguments, got %d", region->symbol, count,
                        (int)num_args);
  OrtValue** values = calloc((size_t)count, sizeof(OrtValue*));
  if (values == NULL) return collage_fail("MemoryError", "%s: no memory", region->symbol);
  /* onnxruntime leaves the thread that calls as it left its own threads. */
  const control before = get_control() & flushing;
  const region_state* state = state_of(region);
  const int failed = state == NULL ? -1 : run(region, state, args, values);
  for (int i = 0; i < count; ++i)
    if (values[i] != NULL) ort.ReleaseValue(values[i]);
  take_flags(before);
  free(values);
  return failed;
}
