/* How many threads the kernels of a library run with: one number for every backend in it.
 *
 * Weak and hidden: each library backend brings this object along, the final link keeps one.
 */
#include <omp.h>

#ifndef COLLAGE_NUM_THREADS
#define COLLAGE_NUM_THREADS 0 /* all cores */
#endif

__attribute__((weak, visibility("hidden"))) int collage_num_threads(void) {
  return COLLAGE_NUM_THREADS > 0 ? COLLAGE_NUM_THREADS : omp_get_num_procs();
}

/* To be called at the start of a library backend's entry: OpenMP keeps its count per calling
 * thread, so setting it once at load would miss callers on other threads. */
__attribute__((weak, visibility("hidden"))) void collage_use_thread_pool(void) {
  omp_set_dynamic(0);
  omp_set_num_threads(collage_num_threads());
}
