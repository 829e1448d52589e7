/* Denormal numbers count as zero while a call runs, in every thread that takes part.
 *
 * An operation on a denormal takes some processors a hundred times as long. Whether they are
 * flushed is a flag of each thread's control register. `main` begins by calling
 * collage_flush_denormals, which sets the flags in the caller's thread. Our threads take the
 * caller's on with each region (openmp_pool.c), and so do the loops of TVM's kernels
 * (thread_pool.c). Where a library starts loops of its own (argument 0) on libgomp, its threads are
 * told in a loop of their own, which on a machine that is busy otherwise can take milliseconds.
 * `main` ends by calling collage_restore_denormals with what it got, which gives all of them the
 * flags that the caller had. An error in between drops that object, which does the same.
 */
#include <collage_ffi.h>
#include <omp.h>
#include <stdlib.h>

#include "denormal_flags.h"
#include "num_threads.c" /* so that this object is whole by itself */

#ifdef COLLAGE_NO_DENORMAL_FLAGS
#error "how this processor flushes denormals is not known here: compile with IEEE denormals"
#endif

/* There where this is linked with our threads (openmp_pool.py). */
extern void __wrap_GOMP_parallel(void) __attribute__((weak));

/* Sets the flags that `flags` has, and clears the others, in the caller, and in its pool too. */
static void set_flags(control flags, int with_pool) {
  take_flags(flags);
  /* A new thread begins with the flags of the one that makes it; those that are there do not. */
  if (__wrap_GOMP_parallel != NULL) return;
  if (!with_pool || collage_num_threads() == 1 || omp_in_parallel()) return;
#pragma omp parallel num_threads(collage_num_threads())
  take_flags(flags);
}

typedef struct {
  control flags; /* the caller's */
  int with_pool;
  int restored;
} guard;

static void restore(guard* g) {
  if (!g->restored) set_flags(g->flags, g->with_pool);
  g->restored = 1;
}

static int call_guard(void* self, __attribute__((unused)) const TVMFFIAny* args,
                      __attribute__((unused)) int32_t num_args, TVMFFIAny* result) {
  restore(self);
  result->type_index = kTVMFFINone;
  return 0;
}

static void delete_guard(void* self) {
  restore(self);
  free(self);
}

COLLAGE_EXPORT(collage_flush_denormals) {
  COLLAGE_CHECK_ARGS(1);
  if (args[0].type_index != kTVMFFIInt)
    return collage_fail("TypeError", "argument 0 does not say whether to tell the pool");
  guard* g = malloc(sizeof(guard));
  if (g == NULL) return collage_fail("MemoryError", "no memory for the caller's flags");
  g->flags = get_control() & flushing;
  g->with_pool = args[0].v_int64 != 0;
  g->restored = 0;
  TVMFFIObjectHandle handle;
  if (TVMFFIFunctionCreate(g, call_guard, delete_guard, &handle) != 0) {
    free(g);
    return -1;
  }
  result->type_index = kTVMFFIFunction;
  result->zero_padding = 0;
  result->v_obj = handle;
  set_flags(flushing, g->with_pool);
  return 0;
}

COLLAGE_EXPORT(collage_restore_denormals) {
  COLLAGE_CHECK_ARGS(1);
  if (args[0].type_index != kTVMFFIFunction)
    return collage_fail("TypeError", "argument 0 is not what collage_flush_denormals gave");
  return TVMFFIFunctionCall(args[0].v_obj, NULL, 0, result);
}
