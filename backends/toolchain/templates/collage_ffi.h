/* Tensors, errors and threads for a library backend's entry points, in plain C (and C++).
 *
 * A code generator exports one function per partition:
 *
 *     COLLAGE_EXPORT(my_symbol) {
 *       COLLAGE_CHECK_ARGS(2);
 *       const DLTensor* x = collage_tensor(&args[0]);   // inputs, then one tensor per output
 *       DLTensor* y = collage_tensor(&args[1]);
 *       ...
 *       return 0;                                       // or: return collage_fail(kind, format, ...)
 *     }
 *
 * The calling convention is TVM FFI's (tvm/ffi/c_api.h, TVMFFISafeCallType); only that C header is
 * needed, so a stub compiles in a few hundredths of a second.
 */
#ifndef COLLAGE_FFI_H_
#define COLLAGE_FFI_H_

#include <stdarg.h>
#include <stdio.h>
#include <tvm/ffi/c_api.h>

#ifdef __cplusplus
#define COLLAGE_EXTERN_C extern "C"
#else
#define COLLAGE_EXTERN_C extern
#endif

/* Threads: num_threads.c, part of every static library that native.static_library makes. The first
 * tells how many threads a kernel may use. The second makes OpenMP use that many for the calling
 * thread: call it at the start of an entry that has parallel loops. */
COLLAGE_EXTERN_C int collage_num_threads(void);
COLLAGE_EXTERN_C void collage_use_thread_pool(void);

/* Opens the definition of the function that TVM calls for the partition `symbol`. */
#define COLLAGE_EXPORT(symbol)                                                                  \
  COLLAGE_EXTERN_C __attribute__((visibility("default"))) int __tvm_ffi_##symbol(               \
      void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);                  \
  int __tvm_ffi_##symbol(__attribute__((unused)) void* self,                                    \
                         __attribute__((unused)) const TVMFFIAny* args,                         \
                         __attribute__((unused)) int32_t num_args,                              \
                         __attribute__((unused)) TVMFFIAny* result)

/* The tensor an argument holds, or NULL when it holds something else. */
static inline DLTensor* collage_tensor(const TVMFFIAny* arg) {
  if (arg->type_index == kTVMFFIDLTensorPtr) return (DLTensor*)arg->v_ptr;
  if (arg->type_index == kTVMFFITensor) return (DLTensor*)((char*)arg->v_obj + sizeof(TVMFFIObject));
  return NULL;
}

/* The first element of a tensor. */
static inline void* collage_data(const DLTensor* tensor) {
  return (char*)tensor->data + tensor->byte_offset;
}

static inline int64_t collage_num_elements(const DLTensor* tensor) {
  int64_t count = 1;
  for (int axis = 0; axis < tensor->ndim; ++axis) count *= tensor->shape[axis];
  return count;
}

static inline int collage_is_float32(const DLTensor* tensor) {
  return tensor->dtype.code == kDLFloat && tensor->dtype.bits == 32 && tensor->dtype.lanes == 1;
}

/* Whether the elements lie densely in row-major order. */
static inline int collage_is_contiguous(const DLTensor* tensor) {
  if (tensor->strides == NULL) return 1;
  int64_t expected = 1;
  for (int axis = tensor->ndim - 1; axis >= 0; --axis) {
    if (tensor->shape[axis] != 1 && tensor->strides[axis] != expected) return 0;
    expected *= tensor->shape[axis];
  }
  return 1;
}

/* Raise an error in the caller: `return collage_fail("ValueError", "... %d", n);`. */
__attribute__((unused, format(printf, 2, 3))) static int collage_fail(const char* kind,
                                                                      const char* format, ...) {
  char message[512];
  va_list values;
  va_start(values, format);
  vsnprintf(message, sizeof(message), format, values);
  va_end(values);
  TVMFFIErrorSetRaisedFromCStr(kind, message);
  return -1;
}

/* The data of a float32 argument of known size, or NULL with an error raised. Sizes are static in a
 * partition, so this is a guard against a wrong caller, not a shape check per axis. */
static inline float* collage_float32(const TVMFFIAny* args, int32_t index, int64_t num_elements) {
  const DLTensor* tensor = collage_tensor(&args[index]);
  if (tensor == NULL) {
    collage_fail("TypeError", "argument %d is not a tensor", (int)index);
  } else if (!collage_is_float32(tensor)) {
    collage_fail("TypeError", "argument %d is not float32", (int)index);
  } else if (tensor->device.device_type != kDLCPU) {
    collage_fail("TypeError", "argument %d is not in host memory", (int)index);
  } else if (!collage_is_contiguous(tensor)) {
    collage_fail("ValueError", "argument %d is not contiguous", (int)index);
  } else if (collage_num_elements(tensor) != num_elements) {
    collage_fail("ValueError", "argument %d has %lld elements, expected %lld", (int)index,
                 (long long)collage_num_elements(tensor), (long long)num_elements);
  } else {
    return (float*)collage_data(tensor);
  }
  return NULL;
}

/* Leaves the entry with an error unless it was given `count` arguments. */
#define COLLAGE_CHECK_ARGS(count)                                                            \
  do {                                                                                       \
    if (num_args != (count))                                                                 \
      return collage_fail("TypeError", "%s: expected %d arguments, got %d", __func__,        \
                          (int)(count), (int)num_args);                                      \
  } while (0)

#endif /* COLLAGE_FFI_H_ */
