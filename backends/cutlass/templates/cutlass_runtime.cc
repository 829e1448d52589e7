/* Everything that the entry points of CUTLASS partitions do. */
#include "cutlass_runtime.h"

#include <collage_cuda.h>

extern "C" void collage_cutlass_reserve(size_t workspace_bytes) {
  const CollageWorkspaceReservation reservation(workspace_bytes);
}

extern "C" int collage_cutlass_run(const collage_cutlass_entry* entry, size_t workspace_bytes,
                                   const TVMFFIAny* args, int32_t num_args) {
  if (num_args != entry->num_arguments) {
    return collage_fail("TypeError", "%s: expected %d arguments, got %d", entry->symbol,
                        entry->num_arguments, static_cast<int>(num_args));
  }
  const auto data = [args](const collage_cutlass_tensor& tensor) {
    return collage_cuda_tensor(args, tensor.argument, tensor.num_elements, tensor.bits);
  };
  const void* inputs[COLLAGE_CUTLASS_MAX_INPUTS] = {};
  for (int i = 0; i < entry->num_inputs; ++i) {
    inputs[i] = data(entry->inputs[i]);
    if (inputs[i] == nullptr) return -1;
  }
  void* output = data(entry->output);
  if (output == nullptr) return -1;

  const int device = collage_cuda_device(collage_tensor(&args[entry->output.argument]));
  int current = -1;
  COLLAGE_CUDA_CHECK(cudaGetDevice(&current));
  if (current != device) COLLAGE_CUDA_CHECK(cudaSetDevice(device));
  void* workspace = nullptr;
  if (workspace_bytes > 0) {
    workspace = collage_cuda_workspace(device, workspace_bytes);
    if (workspace == nullptr) {
      return collage_fail("RuntimeError", "%s: no memory for a workspace of %zu bytes",
                          entry->symbol, workspace_bytes);
    }
  }
  const collage_cutlass_call call = {device,         collage_cuda_stream(device),
                                     workspace,      entry->sizes,
                                     entry->scalars, inputs,
                                     output};
  // An error that someone else left behind would be taken for the launch's own.
  cudaGetLastError();
  const int status = entry->kernel(&call);
  if (status > 0) {
    return collage_fail("RuntimeError", "%s: %s", entry->symbol,
                        cudaGetErrorString(static_cast<cudaError_t>(status)));
  }
  if (status < 0) {
    return collage_fail("RuntimeError", "%s: the kernel refuses its operands (status %d)",
                        entry->symbol, -status);
  }
  return 0;
}
