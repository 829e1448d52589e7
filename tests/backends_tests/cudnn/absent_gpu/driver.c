/* Stands for NVIDIA's driver where cuDNN plans for a GPU that is not here: modules load, nothing
 * runs. */
#define WRITES(name, type, value) \
  int name(type* made) {          \
    *made = value;                \
    return 0;                     \
  }
#define SUCCEEDS(name) \
  int name(void) { return 0; }
typedef void* handle;

WRITES(cuDriverGetVersion, int, 13000)
WRITES(cuDeviceGetCount, int, 1)
WRITES(cuDeviceGet, int, 0)
WRITES(cuOccupancyMaxPotentialClusterSize, int, 1)
WRITES(cuKernelGetAttribute, int, 0)
WRITES(cuCtxGetCurrent, handle, (handle)0x1000)
WRITES(cuLibraryLoadData, handle, (handle)0x1000)
WRITES(cuLibraryLoadFromFile, handle, (handle)0x1000)
WRITES(cuLibraryGetKernel, handle, (handle)0x1000)
WRITES(cuKernelGetFunction, handle, (handle)0x1000)
WRITES(cuModuleLoadData, handle, (handle)0x1000)
WRITES(cuModuleGetFunction, handle, (handle)0x1000)
SUCCEEDS(cuCtxGetLimit)
SUCCEEDS(cuCtxPopCurrent)
SUCCEEDS(cuCtxPushCurrent)
int cuGetErrorName(int error, const char** text) {
  (void)error;
  *text = "an error";
  return 0;
}
int cuGetErrorString(int error, const char** text) {
  (void)error;
  *text = "an error";
  return 0;
}
SUCCEEDS(cuKernelSetAttribute)
SUCCEEDS(cuLaunchCooperativeKernel)
SUCCEEDS(cuLaunchKernel)
SUCCEEDS(cuLaunchKernelEx)
SUCCEEDS(cuLibraryUnload)
SUCCEEDS(cuLinkAddData)
SUCCEEDS(cuLinkComplete)
SUCCEEDS(cuLinkCreate)
SUCCEEDS(cuLinkDestroy)
SUCCEEDS(cuModuleUnload)
SUCCEEDS(cuStreamGetCtx)
SUCCEEDS(cuTensorMapEncodeIm2col)
SUCCEEDS(cuTensorMapEncodeTiled)
