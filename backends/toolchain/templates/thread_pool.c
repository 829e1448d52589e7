/* One thread pool for every kernel of a library.
 *
 * TVM's generated code starts its parallel loops through the pointer __TVMBackendParallelLaunch,
 * which a TVM library holds as a weak symbol and TVM's loader fills with TVM's own pool. Two pools
 * that both spin (TVM's and OpenMP's) slow each other down many times over, so this file defines
 * the pointer itself and points it at OpenMP. It is hidden: TVM's loader looks for it in the
 * dynamic symbol table, does not find it, and leaves it alone.
 */
#include <omp.h>
#include <stddef.h>
#include <stdint.h>

#include "denormal_flags.h"

typedef struct {
  void* sync_handle;
  int32_t num_task;
} parallel_group_env; /* TVMParallelGroupEnv of tvm/runtime/c_backend_api.h */

typedef int (*parallel_lambda)(int task_id, parallel_group_env* env, void* closure);

int collage_num_threads(void); /* num_threads.c */

static int launch(parallel_lambda lambda, void* closure, int num_task) {
  int tasks = num_task > 0 ? num_task : collage_num_threads();
  parallel_group_env env = {NULL, tasks};
  int failed = 0;
  if (tasks == 1 || omp_in_parallel()) {
    for (int task = 0; task < tasks; ++task) failed |= lambda(task, &env, closure);
    return failed ? -1 : 0;
  }
  control callers = get_control() & flushing; /* everybody rounds as the caller does */
#pragma omp parallel for num_threads(collage_num_threads()) schedule(static, 1) reduction(| : failed)
  for (int task = 0; task < tasks; ++task) {
    control before = get_control();
    take_flags(callers);
    failed |= lambda(task, &env, closure);
    take_flags(before & flushing);
  }
  return failed ? -1 : 0;
}

__attribute__((visibility("hidden"))) int (*__TVMBackendParallelLaunch)(parallel_lambda, void*,
                                                                        int) = launch;
