// What all files of the runtime agree on when they are linked.
#pragma once

// The runtime is in each library of partitions, and a bundle is linked of several: one copy is kept.
#define COLLAGE_WEAK __attribute__((weak))

// Whether there are vectors of AVX2 and AVX-512, which functions ask the compiler for by themselves.
#if defined(__x86_64__) && defined(__GNUC__)
#define COLLAGE_X86
#endif
