/* Stands in for libcuda and libnvidia-ml: writes down what it was asked, answers what it was told.
 * Wrong argument types would show here as wrong numbers. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

int fake_error;          /* what cuCtxSynchronize answers */
int fake_no_clocks;      /* whether clocks may be read */
char fake_log[4096];     /* the calls, one per line */

static void note(const char* line) {
  strncat(fake_log, line, sizeof(fake_log) - strlen(fake_log) - 2);
  strcat(fake_log, "\n");
}

int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }
int cuDriverGetVersion(int* version) { *version = 13010; return 0; }
int cuDeviceGet(int* device, int index) { *device = 40 + index; return index < 2 ? 0 : 101; }

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
