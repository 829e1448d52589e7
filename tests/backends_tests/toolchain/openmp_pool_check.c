/* What kernels do with OpenMP, each with an answer that is known. */
#define _GNU_SOURCE
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xmmintrin.h>

/* Each number of a region is seen once, and all know how many they are; 0 when all is well. */
int numbers(int threads, int regions) {
  int wrong = 0;
  for (int r = 0; r < regions; ++r) {
    int seen[64] = {0}, sizes[64] = {0};
#pragma omp parallel num_threads(threads)
    {
      __sync_fetch_and_add(&seen[omp_get_thread_num()], 1);
      sizes[omp_get_thread_num()] = omp_get_num_threads() + 100 * omp_in_parallel();
    }
    for (int i = 0; i < 64; ++i)
      wrong += seen[i] != (i < threads) ||
               (i < threads && sizes[i] != threads + 100 * (threads > 1));
    wrong += omp_get_thread_num() != 0 || omp_get_num_threads() != 1 || omp_in_parallel();
  }
  return wrong;
}

/* The sum of begin, begin + step, ..., dealt out in chunks (0: evenly). */
long loop(int threads, long begin, long end, long step, int chunk) {
  long sum = 0;
  if (chunk == 0) {
#pragma omp parallel for num_threads(threads) reduction(+ : sum)
    for (long i = begin; i < end; i += step) sum += i;
  } else {
#pragma omp parallel for num_threads(threads) schedule(static, chunk) reduction(+ : sum)
    for (long i = begin; i < end; i += step) sum += i;
  }
  return sum;
}

/* Everybody sees what the others wrote before the barrier. */
int barriers(int threads, int rounds) {
  int wrong = 0, board[64];
#pragma omp parallel num_threads(threads)
  for (int r = 0; r < rounds; ++r) {
    board[omp_get_thread_num()] = r;
#pragma omp barrier
    for (int i = 0; i < threads; ++i)
      if (board[i] != r) __sync_fetch_and_add(&wrong, 1);
#pragma omp barrier
  }
  return wrong;
}

/* A region in a region has one thread, and then all is as it was. */
int nested(int threads) {
  int wrong = 0;
#pragma omp parallel num_threads(threads)
  {
    int outer = omp_get_thread_num(), inner = 0;
#pragma omp parallel num_threads(threads)
    __sync_fetch_and_add(&inner, omp_get_num_threads() + 10 * omp_get_thread_num());
    if (inner != 1 || outer != omp_get_thread_num() || omp_get_num_threads() != threads)
      __sync_fetch_and_add(&wrong, 1);
  }
  return wrong;
}

static void* caller(void* argument) {
  return (void*)(intptr_t)numbers((int)(intptr_t)argument, 300);
}

/* Several callers at once, each with helpers of its own, that end with it. */
int callers(int count, int threads) {
  pthread_t all[16];
  intptr_t wrong = 0;
  for (int i = 0; i < count; ++i) pthread_create(&all[i], NULL, caller, (void*)(intptr_t)threads);
  for (int i = 0; i < count; ++i) {
    void* found;
    pthread_join(all[i], &found);
    wrong += (intptr_t)found;
  }
  return (int)wrong;
}

/* A forked process has no helpers yet. */
int forked(int threads) {
  if (numbers(threads, 10) != 0) return -1;
  pid_t child = fork();
  if (child == 0) _exit(numbers(threads, 10) != 0);
  int status;
  waitpid(child, &status, 0);
  return status;
}

/* On one core: in how many of the regions the caller computed a part that was another's. */
int computed_by_caller(int regions) {
  cpu_set_t all, one;
  sched_getaffinity(0, sizeof(all), &all);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &all)) {
      CPU_SET(cpu, &one);
      break;
    }
  sched_setaffinity(0, sizeof(one), &one);
  int count = 0;
  const long self = syscall(SYS_gettid);
  for (int r = 0; r < regions; ++r) {
    long who[2] = {0, 0};
#pragma omp parallel num_threads(2)
    who[omp_get_thread_num()] = syscall(SYS_gettid);
    count += who[0] == self && who[1] == self;
  }
  sched_setaffinity(0, sizeof(all), &all);
  return count;
}

/* In how many parts of a region denormals are flushed, where the caller flushes them or does not. */
int flushing(int threads, int flush) {
  int count = 0;
  const unsigned before = _mm_getcsr();
  _mm_setcsr(flush ? before | 0x8040 : before & ~0x8040u);
#pragma omp parallel num_threads(threads) reduction(+ : count)
  count += (_mm_getcsr() & 0x8040) == 0x8040;
  _mm_setcsr(before);
  return count;
}
