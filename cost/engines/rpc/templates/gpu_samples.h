/* Times single calls on an NVIDIA GPU: each finds the cache cleared, and its launch is hidden
 * behind what clears it. TVM's own evaluator waits for the device before it starts the clock, so
 * that a call's launch, which takes as long as many a kernel, counts as the kernel's.
 *
 * Functions are the driver's, which is there where TVM uses a GPU; no toolkit is needed.
 */
#ifndef COLLAGE_GPU_SAMPLES_H_
#define COLLAGE_GPU_SAMPLES_H_

#include <dlfcn.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <tvm/ffi/extra/c_env_api.h>

#include "collage_ffi.h"

enum { PROBES = 3, MOST_SAMPLES = 4096, MOST_TRIES = 4, CUDA_NOT_READY = 600 };

typedef struct {
  int (*create)(void** event, unsigned flags);
  int (*destroy)(void* event);
  int (*record)(void* event, void* stream);
  int (*query)(void* event);
  int (*wait)(void* event);
  int (*elapsed)(float* ms, void* first, void* last);
  int (*fill)(uint64_t address, unsigned value, size_t words, void* stream);
  int (*wait_all)(void* stream);
} GpuDriver;

/* Whether the driver is there, with all that is asked of it. */
static int open_driver(GpuDriver* driver) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) return 0;
  static const char* const names[] = {
      "cuEventCreate",      "cuEventDestroy_v2",  "cuEventRecord",    "cuEventQuery",
      "cuEventSynchronize", "cuEventElapsedTime", "cuMemsetD32Async", "cuStreamSynchronize"};
  void** places[] = {(void**)&driver->create,  (void**)&driver->destroy, (void**)&driver->record,
                     (void**)&driver->query,   (void**)&driver->wait,    (void**)&driver->elapsed,
                     (void**)&driver->fill,    (void**)&driver->wait_all};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i)
    if ((*places[i] = dlsym(library, names[i])) == NULL) return 0;
  return 1;
}

static double clock_sec(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* What is timed, and what is written before it. */
typedef struct {
  GpuDriver driver;
  TVMFFIObjectHandle function;
  void* stream;
  uint64_t address;
  size_t words;
  void *first, *last;
} GpuTiming;

static int call_main(const GpuTiming* timing) {
  TVMFFIAny args[1] = {{0}}, result = {0};
  args[0].type_index = kTVMFFIRawStr;
  args[0].v_c_str = "main";
  result.type_index = kTVMFFINone;
  return TVMFFIFunctionCall(timing->function, args, 1, &result);
}

static int fill_cache(const GpuTiming* timing, int times) {
  for (int i = 0; i < times; ++i) {
    int status = timing->driver.fill(timing->address, 0, timing->words, timing->stream);
    if (status != 0) return status;
  }
  return 0;
}

/* Seconds that launching a call takes, and one filling. */
static int probe(const GpuTiming* timing, double* launch_sec, double* fill_sec) {
  *launch_sec = *fill_sec = INFINITY;
  for (int i = 0; i < PROBES; ++i) {
    double begin = clock_sec();
    if (call_main(timing) != 0) return -1;
    double launched = clock_sec() - begin;
    timing->driver.wait_all(timing->stream);
    begin = clock_sec();
    if (fill_cache(timing, 1) != 0 || timing->driver.wait_all(timing->stream) != 0)
      return collage_fail("RuntimeError", "the cache cannot be filled");
    double filled = clock_sec() - begin;
    if (launched < *launch_sec) *launch_sec = launched;
    if (filled < *fill_sec) *fill_sec = filled;
  }
  return 0;
}

/* Seconds of one call. A sample whose launch took longer than what was before it is taken again,
 * with twice as much before it. */
static int take_sample(const GpuTiming* timing, int* times, int most, double* seconds) {
  const GpuDriver* driver = &timing->driver;
  for (int tries = 1;; ++tries) {
    float ms = 0;
    int status = fill_cache(timing, *times);
    if (status == 0) status = driver->record(timing->first, timing->stream);
    if (status == 0 && call_main(timing) != 0) return -1;
    if (status == 0) status = driver->record(timing->last, timing->stream);
    int is_hidden = status == 0 && driver->query(timing->first) == CUDA_NOT_READY;
    if (status == 0) status = driver->wait(timing->last);
    if (status == 0) status = driver->elapsed(&ms, timing->first, timing->last);
    if (status != 0) return collage_fail("RuntimeError", "CUDA's driver: error %d", status);
    *seconds = ms * 1e-3;
    if (is_hidden || *times >= most || tries >= MOST_TRIES) return 0;
    *times = 2 * *times < most ? 2 * *times : most;
  }
}

/* The seconds of `count` calls. */
static int take_gpu_samples(GpuTiming* timing, double lead_sec, double lead_limit_sec, int count,
                            double* seconds) {
  double launch_sec, fill_sec;
  if (probe(timing, &launch_sec, &fill_sec) != 0) return -1;
  int most = (int)fmax(1.0, ceil(lead_limit_sec / fill_sec));
  int times = (int)fmax(1.0, ceil(fmax(lead_sec, 2.0 * launch_sec) / fill_sec));
  if (times > most) times = most;
  int failed = 0;
  for (int i = 0; i < count && !failed; ++i)
    failed = take_sample(timing, &times, most, &seconds[i]);
  return failed;
}

/* A module's function; NULL with an error raised. */
static TVMFFIObjectHandle module_function(const TVMFFIAny* module, const char* name) {
  const TVMFFIByteArray text = {"ffi.ModuleGetFunction", sizeof("ffi.ModuleGetFunction") - 1};
  TVMFFIObjectHandle getter = NULL;
  TVMFFIAny args[3] = {{0}}, result = {0};
  if (TVMFFIFunctionGetGlobal(&text, &getter) != 0) return NULL;
  args[0] = *module;
  args[1].type_index = kTVMFFIRawStr;
  args[1].v_c_str = name;
  args[2].type_index = kTVMFFIBool;
  result.type_index = kTVMFFINone;
  const int failed = TVMFFIFunctionCall(getter, args, 3, &result);
  TVMFFIObjectDecRef(getter);
  if (failed) return NULL;
  if (result.type_index == kTVMFFIFunction) return result.v_obj;
  collage_fail("TypeError", "the module has no function '%s'", name);
  return NULL;
}

/* time_gpu(virtual machine's module, buffer, samples, seconds before each at least, at most): times
 * of calls of `main` with the inputs that are set, as text; empty where there is no such driver. */
COLLAGE_EXPORT(collage_guard_time_gpu) {
  COLLAGE_CHECK_ARGS(5);
  const DLTensor* buffer = collage_tensor(&args[1]);
  const int64_t count = args[2].v_int64;
  if (buffer == NULL || args[2].type_index != kTVMFFIInt || count < 1 || count > MOST_SAMPLES)
    return collage_fail("TypeError", "a buffer and a number of samples are expected");
  GpuTiming timing = {{0}};
  timing.function = module_function(&args[0], "invoke_stateful");
  if (timing.function == NULL) return -1;
  const TVMFFIByteArray nothing = {"", 0};
  if (buffer->device.device_type != kDLCUDA || !open_driver(&timing.driver)) {
    TVMFFIObjectDecRef(timing.function);
    return TVMFFIStringFromByteArray(&nothing, result);
  }
  timing.stream = TVMFFIEnvGetStream(kDLCUDA, buffer->device.device_id);
  timing.address = (uint64_t)(uintptr_t)collage_data(buffer);
  timing.words = (size_t)collage_num_elements(buffer);
  static double seconds[MOST_SAMPLES];
  static char words[24 * MOST_SAMPLES];
  int failed = timing.driver.create(&timing.first, 0) != 0 ||
               timing.driver.create(&timing.last, 0) != 0;
  if (failed) collage_fail("RuntimeError", "CUDA's driver makes no events");
  if (!failed)
    failed = take_gpu_samples(&timing, number_of(&args[3]), number_of(&args[4]), (int)count,
                              seconds);
  if (timing.first != NULL) timing.driver.destroy(timing.first);
  if (timing.last != NULL) timing.driver.destroy(timing.last);
  TVMFFIObjectDecRef(timing.function);
  if (failed) return -1;
  size_t size = 0;
  for (int64_t i = 0; i < count; ++i)
    size += (size_t)snprintf(words + size, sizeof(words) - size, "%.9g ", seconds[i]);
  const TVMFFIByteArray text = {words, size};
  return TVMFFIStringFromByteArray(&text, result);
}

#endif /* COLLAGE_GPU_SAMPLES_H_ */
