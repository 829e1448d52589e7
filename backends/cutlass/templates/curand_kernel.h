/* In place of cuRAND's header of this name, which CUTLASS's attention kernel includes but uses for
 * PyTorch's dropout only: so cuRAND need not be installed, and a unit compiles in half the time. */
#ifndef COLLAGE_CURAND_KERNEL_H_
#define COLLAGE_CURAND_KERNEL_H_
#endif
