/* Stands in for NVIDIA's driver library where there is none, so that TVM's CUDA runtime loads and
 * CUDA code can be compiled. Every function reports that there is no device. */
typedef int CUresult;
enum { CUDA_ERROR_NO_DEVICE = 100 };

#define COLLAGE_NO_DEVICE(name) \
  CUresult name(void) { return CUDA_ERROR_NO_DEVICE; }

COLLAGE_NO_DEVICE(cuInit)
COLLAGE_NO_DEVICE(cuDriverGetVersion)
COLLAGE_NO_DEVICE(cuDeviceGetName)
COLLAGE_NO_DEVICE(cuDeviceGetCount)
COLLAGE_NO_DEVICE(cuFuncSetAttribute)
COLLAGE_NO_DEVICE(cuGetErrorName)
COLLAGE_NO_DEVICE(cuGetErrorString)
COLLAGE_NO_DEVICE(cuLaunchKernelEx)
COLLAGE_NO_DEVICE(cuModuleGetFunction)
COLLAGE_NO_DEVICE(cuModuleLoadData)
COLLAGE_NO_DEVICE(cuModuleUnload)
COLLAGE_NO_DEVICE(cuTensorMapEncodeTiled)
