/* What runtimes of libraries that take whole regions have in common: arguments of known shape, and
 * a library that lies beside the bundle's. For one source of a runtime, whose first line defines
 * _GNU_SOURCE, for dladdr. */
#ifndef COLLAGE_REGION_RUNTIME_H_
#define COLLAGE_REGION_RUNTIME_H_

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "collage_region.h"

/* The argument, or NULL with an error raised where it is not what was wanted. */
static const DLTensor* collage_region_argument(
    const char* symbol, const TVMFFIAny* args, int index, const collage_region_tensor* wanted) {
  const DLTensor* tensor = collage_tensor(&args[index]);
  if (tensor == NULL) {
    collage_fail("TypeError", "%s: argument %d is not a tensor", symbol, index);
    return NULL;
  }
  int same = tensor->ndim == wanted->rank && tensor->dtype.code == wanted->dtype.code &&
             tensor->dtype.bits == wanted->dtype.bits && tensor->dtype.lanes == 1;
  for (int axis = 0; same && axis < tensor->ndim; ++axis)
    same = tensor->shape[axis] == wanted->shape[axis];
  if (!same)
    collage_fail("TypeError", "%s: argument %d has not the shape or dtype it was compiled for",
                 symbol, index);
  else if (tensor->device.device_type != kDLCPU)
    collage_fail("TypeError", "%s: argument %d is not in host memory", symbol, index);
  else if (!collage_is_contiguous(tensor))
    collage_fail("ValueError", "%s: argument %d is not contiguous", symbol, index);
  else
    return tensor;
  return NULL;
}

/* Opens a file of the folder `lib` beside the library that `anchor` is in, for good: threads of its
 * own, which have nothing to do, outlive what it was opened for. It is opened by the file that a link
 * stands for, so that it looks for its own companions beside that. NULL with an error raised where
 * there is none. */
static void* collage_region_library(const char* symbol, const char* name,
                                                            const void* anchor) {
  Dl_info here;
  char place[PATH_MAX], resolved[PATH_MAX];
  if (dladdr(anchor, &here) == 0 || here.dli_fname == NULL) {
    collage_fail("RuntimeError", "region '%s': lost", symbol);
    return NULL;
  }
  const char* end = strrchr(here.dli_fname, '/');
  const int length = end == NULL ? 0 : (int)(end - here.dli_fname + 1);
  snprintf(place, sizeof(place), "%.*slib/%s", length, here.dli_fname, name);
  if (realpath(place, resolved) == NULL) {
    collage_fail("RuntimeError", "region '%s': there is no %s", symbol, place);
    return NULL;
  }
  void* library = dlopen(resolved, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == NULL) collage_fail("RuntimeError", "region '%s': %s", symbol, dlerror());
  return library;
}

#endif /* COLLAGE_REGION_RUNTIME_H_ */
