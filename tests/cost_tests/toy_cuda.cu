// Kernels that do as they are told, for the toy CUDA backend. Compiled once for all behaviours.
#include <cstdint>

__global__ void relu_kernel(const float* in, float* out, int64_t size) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < size) out[i] = in[i] > 0.0f ? in[i] : 0.0f;
}

__global__ void add_kernel(float* out, int64_t index, float value) { out[index] += value; }

// Busy for that long by the device's own clock.
__global__ void spin_kernel(int64_t nanoseconds) {
  int64_t begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
}

__global__ void fault_kernel(float* bad) { *bad = 1.0f; }

__global__ void trap_kernel() { asm volatile("trap;"); }

void launch_relu(const float* in, float* out, int64_t size, cudaStream_t stream) {
  relu_kernel<<<static_cast<unsigned>((size + 255) / 256), 256, 0, stream>>>(in, out, size);
}
void launch_add(float* out, int64_t index, float value, cudaStream_t stream) {
  add_kernel<<<1, 1, 0, stream>>>(out, index, value);
}
void launch_spin(int64_t nanoseconds, cudaStream_t stream) {
  spin_kernel<<<1, 1, 0, stream>>>(nanoseconds);
}
void launch_fault(cudaStream_t stream) {
  fault_kernel<<<1, 1, 0, stream>>>(reinterpret_cast<float*>(uintptr_t{64}));
}
void launch_trap(cudaStream_t stream) { trap_kernel<<<1, 1, 0, stream>>>(); }
