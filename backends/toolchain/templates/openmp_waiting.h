/* How a thread of the pool waits: awake for a while, then asleep in the kernel. */
#ifndef COLLAGE_OPENMP_WAITING_H
#define COLLAGE_OPENMP_WAITING_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_NS = 100000, SHARING_CORES = 16 /* a sixteenth of the patience */ };

static int patience; /* in pauses */
static __thread long preemptions;
static __thread bool shares_core;

static void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

static void sleep_while(atomic_int* word, int value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake_all(atomic_int* word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Whether this thread lost its core to somebody since it last asked. */
static bool was_preempted(void) {
  struct rusage usage;
  if (getrusage(RUSAGE_THREAD, &usage) != 0) return false;
  bool lost = usage.ru_nivcsw != preemptions;
  preemptions = usage.ru_nivcsw;
  return lost;
}

/* Awake for a while, then asleep. Sleepers are counted before they look once more, and who changes
 * the word does so before it looks for sleepers, so that one of the two sees the other. */
static void wait_while(atomic_int* word, int value, atomic_int* sleepers) {
  int pauses = shares_core ? patience / SHARING_CORES : patience;
  for (int i = 0; i < pauses; ++i) {
    if (atomic_load_explicit(word, memory_order_acquire) != value) return;
    pause_briefly();
  }
  shares_core = was_preempted();
  atomic_fetch_add(sleepers, 1);
  while (atomic_load(word) == value) sleep_while(word, value);
  atomic_fetch_sub(sleepers, 1);
}

static long long nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Of a pause, at its fastest: while one batch is timed, the core may be somebody else's. */
static double pause_ns(void) {
  enum { BATCHES = 10, PAUSES = 100 };
  long long least = LLONG_MAX;
  for (int batch = 0; batch < BATCHES; ++batch) {
    const long long begin = nanoseconds();
    for (int i = 0; i < PAUSES; ++i) pause_briefly();
    const long long took = nanoseconds() - begin;
    if (took < least) least = took;
  }
  return least < PAUSES ? 1.0 : (double)least / PAUSES;
}

/* A pause takes 10 to 140 cycles by processor, so it is the time that is kept. OMP_WAIT_POLICY
 * (OpenMP 4.5, section 4.7) decides otherwise where it is set. */
static void set_patience(void) {
  const char* policy = getenv("OMP_WAIT_POLICY");
  patience = (int)(PATIENCE_NS / pause_ns());
  if (policy != NULL && strcasecmp(policy, "passive") == 0) patience = 0;
  if (policy != NULL && strcasecmp(policy, "active") == 0) patience = INT_MAX;
}

#endif
