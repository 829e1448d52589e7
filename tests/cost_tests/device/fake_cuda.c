/* Stands in for libcuda and libnvidia-ml: writes down what it was asked, answers what it was told.
 * Wrong argument types would show here as wrong numbers. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

int fake_error;          /* what cuCtxSynchronize answers */
int fake_no_clocks;      /* whether clocks may be read */
int fake_limit = 700000; /* the power limit in force, in mW; the default one is 700000 */
int fake_sm_clock = 1980; /* the clock that an operator chose; the default one is 1980 */
int fake_mig;            /* whether the GPU is parted */
int fake_busy;           /* percent of the time in which kernels run */
int fake_processes;      /* how many have a context */
char fake_log[4096];     /* the calls, one per line */

static void note(const char* line) {
  strncat(fake_log, line, sizeof(fake_log) - strlen(fake_log) - 2);
  strcat(fake_log, "\n");
}

int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }
int cuDriverGetVersion(int* version) { *version = 13010; return 0; }
int cuDeviceGet(int* device, int index) { *device = 40 + index; return index < 2 ? 0 : 101; }

int cuDeviceGetCount(int* count) { *count = 2; return 0; }

int cuDeviceGetUuid_v2(char* bytes, int device) {
  for (int i = 0; i < 16; ++i) bytes[i] = (char)(device + i);
  return 0;
}

int cuDeviceGetPCIBusId(char* text, int size, int device) {
  snprintf(text, (size_t)size, "0000:%02d:00.0", device);
  return 0;
}

int cuMemsetD32Async(unsigned long long address, unsigned value, size_t words, void* stream) {
  char line[128];
  snprintf(line, sizeof(line), "fill %llx %u %zu %zx", address, value, words, (size_t)stream);
  note(line);
  return 0;
}

int cuCtxSynchronize(void) { return fake_error; }

int cuGetErrorName(int code, const char** text) {
  if (code != 700 && code != 900) return 1;
  *text = code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
  return 0;
}

int cuGetErrorString(int code, const char** text) {
  if (code != 700 && code != 900) return 1;
  *text = code == 700 ? "an illegal memory access was encountered" : "not while capturing";
  return 0;
}

int nvmlInit_v2(void) { return 0; }

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** handle) {
  *handle = (void*)0x123456789abcUL;
  return strcmp(bus, "0000:40:00.0") == 0 ? 0 : 6;
}

int nvmlDeviceGetClockInfo(void* handle, int kind, unsigned* mhz) {
  if (fake_no_clocks || handle != (void*)0x123456789abcUL) return 4;
  *mhz = kind == 1 ? 1980 : kind == 2 ? 3201 : 7;
  return 0;
}

int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  snprintf(text, size, "580.65.06");
  return 0;
}

int nvmlDeviceGetEnforcedPowerLimit(void* handle, unsigned* milliwatts) {
  *milliwatts = (unsigned)fake_limit;
  return handle == (void*)0x123456789abcUL ? 0 : 4;
}

int nvmlDeviceGetPowerManagementDefaultLimit(void* handle, unsigned* milliwatts) {
  *milliwatts = 700000;
  return handle == (void*)0x123456789abcUL ? 0 : 4;
}

int nvmlDeviceGetApplicationsClock(void* handle, int kind, unsigned* mhz) {
  *mhz = kind == 1 ? (unsigned)fake_sm_clock : 3201;
  return handle == (void*)0x123456789abcUL ? 0 : 4;
}

int nvmlDeviceGetDefaultApplicationsClock(void* handle, int kind, unsigned* mhz) {
  *mhz = kind == 1 ? 1980 : 3201;
  return handle == (void*)0x123456789abcUL ? 0 : 4;
}

int nvmlDeviceGetMigMode(void* handle, unsigned* current, unsigned* pending) {
  *current = *pending = (unsigned)fake_mig;
  return handle == (void*)0x123456789abcUL ? 0 : 4;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  *handle = (void*)0x515cUL;
  return strcmp(uuid, "MIG-28292a2b-2c2d-2e2f-3031-323334353637") == 0 ? 0 : 6;
}

int nvmlDeviceGetAttributes_v2(void* handle, void* attributes) {
  struct { unsigned counts[6], gpu_slices, compute_slices; unsigned long long memory_mib; } part = {
      {42, 3, 2, 0, 1, 0}, 3, 2, 40192};
  if (handle != (void*)0x515cUL) return 2;
  memcpy(attributes, &part, sizeof(part));
  return 0;
}

int nvmlDeviceGetUtilizationRates(void* handle, unsigned* rates) {
  if (fake_mig || handle != (void*)0x123456789abcUL) return 3;
  rates[0] = (unsigned)fake_busy;
  rates[1] = 77;
  return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* count, void* processes) {
  struct { unsigned pid; unsigned long long memory; unsigned gpu, compute; } one = {0, 1 << 20, 1, 2};
  unsigned room = *count;
  *count = (unsigned)fake_processes;
  if (room < *count) return 7;
  for (unsigned i = 0; i < *count; ++i) {
    one.pid = 900 + i;
    memcpy((char*)processes + i * sizeof(one), &one, sizeof(one));
  }
  return handle == (void*)0x123456789abcUL ? 0 : 4;
}
