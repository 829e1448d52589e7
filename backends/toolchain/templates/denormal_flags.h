/* The flags of a thread's control register by which denormal numbers count as zero. */
#ifndef COLLAGE_DENORMAL_FLAGS_H
#define COLLAGE_DENORMAL_FLAGS_H

#include <stdint.h>

#if defined(__SSE__)
#include <xmmintrin.h>
typedef uint32_t control;
static const control flushing = 0x8040; /* flush to zero, denormals are zero */
static control get_control(void) { return _mm_getcsr(); }
static void set_control(control value) { _mm_setcsr(value); }
#elif defined(__aarch64__)
typedef uint64_t control;
static const control flushing = 1u << 24; /* flush to zero, inputs and outputs */
static control get_control(void) {
  control value;
  __asm__ volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
static void set_control(control value) { __asm__ volatile("msr fpcr, %0" : : "r"(value)); }
#else /* not known: denormals stay what they are */
#define COLLAGE_NO_DENORMAL_FLAGS
typedef uint32_t control;
static const control flushing = 0;
static control get_control(void) { return 0; }
static void set_control(control value) { (void)value; }
#endif

/* Gives this thread the flags that `flags` has, and clears the others. */
static void take_flags(control flags) { set_control((get_control() & ~flushing) | flags); }

#endif
