/* The part of GNU OpenMP's runtime that compiled kernels call, where nobody waits for a thread that
 * does not come.
 *
 * libgomp lets all threads of a region meet at its end. Where other programs use the same cores, one
 * of the threads has no core when the region begins, and the others wait for it, region after
 * region: a network took twenty times as long beside eight programs as alone. Here a part of a
 * region that its thread has not begun is computed by whoever is done with his own, so a region
 * waits for none but what is under way. Threads also wait awake between regions, for a call has many;
 * but not those that lost their core to somebody since they last looked.
 *
 * A function stands in for libgomp's of the same name with another first letter (libgomp's ABI as
 * GCC's gcc/omp-builtins.def has it, and OpenMP 4.5, section 3.2), so that it does not matter who
 * else has libgomp in the process: kernels' calls are led here by the linker (--wrap), libraries' by
 * a changed letter in their table of names (openmp_pool.py). What does not depend on the region
 * (critical sections) stays libgomp's. Every calling thread has helpers of its own, as in
 * libgomp, and a region in a region has one thread.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "denormal_flags.h"
#include "openmp_waiting.h"

#define EXPORT __attribute__((visibility("default")))
#define LINE _Alignas(64) /* a cache line for itself: others write to their own */

enum { MOST_THREADS = 1024, MOST_NESTED = 16 };

typedef void (*region_body)(void*);

/* A part is the body of the region run with one thread number. */
enum { DONE, OFFERED, TAKEN };

typedef struct {
  LINE atomic_int state;
} part;

typedef struct pool pool;

typedef struct {
  pool* pool;
  int number; /* of the thread in a region, from 1: the caller is 0 */
  pthread_t thread;
} helper;

struct pool {
  LINE atomic_int turn;       /* other with every region: idle helpers watch it */
  LINE atomic_int asleep;     /* helpers that wait for it in the kernel */
  LINE atomic_int unfinished; /* parts of the region, without the caller's own */
  atomic_int caller_asleep;
  LINE atomic_int arrived; /* at the region's barrier */
  LINE atomic_int passed;  /* barriers */
  atomic_int at_barrier;   /* threads that wait for it in the kernel */
  LINE atomic_int size;    /* threads of the region */
  region_body body;
  void* data;
  control flags; /* the caller's: all round as it does */
  int wanted;    /* the caller's omp_set_num_threads */
  atomic_bool ending;
  int num_helpers;
  helper* helpers;
  part* parts; /* by helper */
};

/* Where a thread is. */
typedef struct {
  pool* team; /* of the region that it computes in; none outside, and where it is alone */
  int number, size, level;
  int trip; /* of its loop, see GOMP_loop_static_next */
  long begin, end, step, chunk;
} position;

static __thread position here = {NULL, 0, 1, 0, 0, 0, 0, 0, 0};
static __thread pool* own; /* this thread's helpers, where it called a region */
static __thread int wanted_threads;
static __thread struct {
  int depth;
  position before[MOST_NESTED];
} started; /* regions begun by GOMP_parallel_start */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t ends_with_thread;
static int default_threads;

/* ---- parts of a region ---- */

static void compute(pool* p, int number) {
  const position before = here;
  const control flags = get_control() & flushing;
  const int wanted = wanted_threads;
  if (flags != p->flags) take_flags(p->flags);
  here = (position){p, number, atomic_load_explicit(&p->size, memory_order_relaxed), 1, 0, 0, 0, 0, 0};
  wanted_threads = p->wanted;
  p->body(p->data);
  wanted_threads = wanted;
  here = before;
  if (flags != p->flags) take_flags(flags);
}

/* Compute a helper's part unless it is begun or done. */
static void take(pool* p, int index) {
  int offered = OFFERED;
  if (!atomic_compare_exchange_strong(&p->parts[index].state, &offered, TAKEN)) return;
  compute(p, index + 1);
  atomic_store_explicit(&p->parts[index].state, DONE, memory_order_relaxed);
  if (atomic_fetch_sub(&p->unfinished, 1) == 1 && atomic_load(&p->caller_asleep))
    wake_all(&p->unfinished);
}

static void* help(void* argument) {
  const helper* self = argument;
  pool* p = self->pool;
  for (;;) {
    const int turn = atomic_load(&p->turn);
    if (atomic_load(&p->ending)) return NULL;
    const int parts = atomic_load(&p->size) - 1, first = self->number - 1;
    if (first < parts) {
      take(p, first);
      /* Whose thread has no core: all who come here have passed the region's barriers, and every
       * part that waits at one has a thread. */
      for (int i = 1; i < parts; ++i) take(p, (first + i) % parts);
    }
    wait_while(&p->turn, turn, &p->asleep);
  }
}

/* ---- pools ---- */

/* The calling thread's pool. What ends after it with the thread may begin a region yet. */
static void end_pool(void* ended) {
  pool* p = ended;
  own = NULL;
  atomic_store(&p->ending, true);
  atomic_fetch_add(&p->turn, 1);
  wake_all(&p->turn);
  for (int i = 0; i < p->num_helpers; ++i) pthread_join(p->helpers[i].thread, NULL);
  free(p->helpers);
  free(p->parts);
  free(p);
}

/* A forked process has the forking thread alone: its helpers are gone, and what they were in. */
static void forget_pool(void) {
  own = NULL;
  pthread_setspecific(ends_with_thread, NULL);
}

static int cores(void) {
  cpu_set_t set;
  int count = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
  if (count < 1) count = (int)sysconf(_SC_NPROCESSORS_ONLN);
  return count < 1 ? 1 : count < MOST_THREADS ? count : MOST_THREADS;
}

static void set_up(void) {
  const char* text = getenv("OMP_NUM_THREADS");
  const long asked = text == NULL ? 0 : strtol(text, NULL, 10);
  default_threads = asked < 1 ? cores() : asked < MOST_THREADS ? (int)asked : MOST_THREADS;
  set_patience();
  pthread_key_create(&ends_with_thread, end_pool);
  pthread_atfork(NULL, NULL, forget_pool);
}

static void* zeroed(size_t count, size_t size) {
  const size_t bytes = (count * size + 63) / 64 * 64;
  void* memory = aligned_alloc(64, bytes == 0 ? 64 : bytes);
  if (memory == NULL) {
    fputs("collage: no memory for a thread pool\n", stderr);
    abort();
  }
  return memset(memory, 0, bytes);
}

/* This thread's pool, with so many helpers at least. */
static pool* pool_of(int helpers) {
  if (own != NULL && own->num_helpers >= helpers) return own;
  if (own != NULL) end_pool(own);
  pool* p = zeroed(1, sizeof(pool));
  p->parts = zeroed((size_t)helpers, sizeof(part));
  p->helpers = zeroed((size_t)helpers, sizeof(helper));
  atomic_store(&p->size, 1);
  for (p->num_helpers = 0; p->num_helpers < helpers; ++p->num_helpers) {
    helper* next = &p->helpers[p->num_helpers];
    *next = (helper){p, p->num_helpers + 1, 0};
    int error = pthread_create(&next->thread, NULL, help, next);
    if (error != 0) { /* kernels count on as many threads as they asked for, as in libgomp */
      fprintf(stderr, "collage: cannot start thread %d of %d: %s\n", next->number + 1, helpers + 1,
              strerror(error));
      abort();
    }
  }
  own = p;
  pthread_setspecific(ends_with_thread, p);
  return p;
}

/* ---- regions ---- */

/* Offer all parts but the caller's, and say where the caller is now. */
static void begin_region(region_body body, void* data, unsigned num_threads) {
  pthread_once(&once, set_up);
  int size = num_threads > 0 ? (int)num_threads : wanted_threads > 0 ? wanted_threads : default_threads;
  if (size > MOST_THREADS) size = MOST_THREADS;
  if (here.level > 0 || size == 1) {
    here = (position){NULL, 0, 1, here.level + 1, 0, 0, 0, 0, 0};
    return;
  }
  pool* p = pool_of(size - 1);
  p->body = body;
  p->data = data;
  p->flags = get_control() & flushing;
  p->wanted = wanted_threads;
  atomic_store_explicit(&p->size, size, memory_order_relaxed);
  atomic_store_explicit(&p->arrived, 0, memory_order_relaxed);
  atomic_store_explicit(&p->unfinished, size - 1, memory_order_relaxed);
  for (int i = 0; i < size - 1; ++i)
    atomic_store_explicit(&p->parts[i].state, OFFERED, memory_order_release);
  atomic_fetch_add(&p->turn, 1);
  if (atomic_load(&p->asleep)) wake_all(&p->turn);
  here = (position){p, 0, size, 1, 0, 0, 0, 0, 0};
}

/* What the caller does once its own part is done. */
static void end_region(position before) {
  pool* p = here.team;
  here = before;
  if (p == NULL) return;
  for (int i = atomic_load(&p->size) - 2; i >= 0; --i) take(p, i);
  for (int left; (left = atomic_load(&p->unfinished)) > 0;)
    wait_while(&p->unfinished, left, &p->caller_asleep);
}

EXPORT void COMP_parallel(region_body body, void* data, unsigned num_threads, unsigned flags) {
  (void)flags; /* whether threads are bound to cores, which they are not */
  const position before = here;
  begin_region(body, data, num_threads);
  body(data);
  end_region(before);
}

/* Before GCC 4.9 a region was begun, run by the caller and ended: oneDNN's wheels are. */
EXPORT void COMP_parallel_start(region_body body, void* data, unsigned num_threads) {
  if (started.depth == MOST_NESTED) {
    fputs("collage: too many parallel regions in each other\n", stderr);
    abort();
  }
  started.before[started.depth++] = here;
  begin_region(body, data, num_threads);
}

EXPORT void COMP_parallel_end(void) { end_region(started.before[--started.depth]); }

EXPORT void COMP_barrier(void) {
  pool* p = here.team;
  if (p == NULL) return;
  const int passed = atomic_load(&p->passed);
  if (atomic_fetch_add(&p->arrived, 1) + 1 < here.size) {
    wait_while(&p->passed, passed, &p->at_barrier);
    return;
  }
  atomic_store(&p->arrived, 0);
  atomic_fetch_add(&p->passed, 1);
  if (atomic_load(&p->at_barrier)) wake_all(&p->passed);
}

/* ---- loops that are dealt out beforehand ---- */

/* The next iterations of this thread. Without a chunk: one stretch each, the first ones longer by
 * one where they do not divide evenly; else chunks in turns. */
EXPORT bool COMP_loop_static_next(long* begin, long* end) {
  position* p = &here;
  const long distance = p->step > 0 ? p->end - p->begin : p->begin - p->end;
  const long stride = p->step > 0 ? p->step : -p->step;
  const long count = distance <= 0 ? 0 : (distance + stride - 1) / stride;
  long first, last;
  if (p->chunk == 0) {
    const long each = count / p->size, more = count % p->size;
    if (p->trip > 0) return false;
    first = each * p->number + (p->number < more ? p->number : more);
    last = first + each + (p->number < more);
  } else {
    first = ((long)p->trip * p->size + p->number) * p->chunk;
    last = first + p->chunk < count ? first + p->chunk : count;
  }
  ++p->trip;
  if (first >= last) return false;
  *begin = p->begin + first * p->step;
  *end = p->begin + last * p->step;
  return true;
}

EXPORT bool COMP_loop_static_start(long begin, long end, long step, long chunk, long* first,
                                   long* last) {
  here.begin = begin;
  here.end = end;
  here.step = step;
  here.chunk = chunk;
  here.trip = 0;
  return COMP_loop_static_next(first, last);
}

EXPORT void COMP_loop_end(void) { COMP_barrier(); }
EXPORT void COMP_loop_end_nowait(void) {}

/* ---- questions ---- */

EXPORT int cmp_get_thread_num(void) { return here.number; }
EXPORT int cmp_get_num_threads(void) { return here.size; }
EXPORT int cmp_in_parallel(void) { return here.team != NULL; }
EXPORT int cmp_get_num_procs(void) { return cores(); }
EXPORT void cmp_set_num_threads(int count) { wanted_threads = count > 0 ? count : 1; }
EXPORT int cmp_get_dynamic(void) { return 0; }
EXPORT void cmp_set_dynamic(int dynamic) { (void)dynamic; }

EXPORT int cmp_get_max_threads(void) {
  pthread_once(&once, set_up);
  return wanted_threads > 0 ? wanted_threads : default_threads;
}

/* ---- as a linker that wraps libgomp's functions asks for them ---- */

#define WRAPS(theirs, own) \
  extern __typeof__(own) __wrap_##theirs __attribute__((alias(#own), visibility("default")))

WRAPS(GOMP_parallel, COMP_parallel);
WRAPS(GOMP_parallel_start, COMP_parallel_start);
WRAPS(GOMP_parallel_end, COMP_parallel_end);
WRAPS(GOMP_barrier, COMP_barrier);
WRAPS(GOMP_loop_static_next, COMP_loop_static_next);
WRAPS(GOMP_loop_static_start, COMP_loop_static_start);
WRAPS(GOMP_loop_end, COMP_loop_end);
WRAPS(GOMP_loop_end_nowait, COMP_loop_end_nowait);
WRAPS(omp_get_thread_num, cmp_get_thread_num);
WRAPS(omp_get_num_threads, cmp_get_num_threads);
WRAPS(omp_in_parallel, cmp_in_parallel);
WRAPS(omp_get_num_procs, cmp_get_num_procs);
WRAPS(omp_set_num_threads, cmp_set_num_threads);
WRAPS(omp_get_dynamic, cmp_get_dynamic);
WRAPS(omp_set_dynamic, cmp_set_dynamic);
WRAPS(omp_get_max_threads, cmp_get_max_threads);
