/* Runs one kernel unit on random data and times it.
 *
 *   profile LIBRARY SYMBOL SAMPLE REPETITIONS --sizes N... --scalars X... --tensors DTYPE:COUNT...
 *
 * The last tensor is the output. Writes up to 65536 evenly spread elements of the result to SAMPLE,
 * as float32, and prints "ready". What took most of the time until then needs no device to itself:
 * the times are taken once a byte arrives on standard input, and printed as {"sec": [...]}. Between
 * runs the second-level cache is overwritten: in a model, other kernels have used it since.
 */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "collage_cutlass.h"

#define CHECK(call)                                                                   \
  do {                                                                                \
    cudaError_t error = (call);                                                       \
    if (error != cudaSuccess) {                                                       \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));             \
      std::exit(2);                                                                   \
    }                                                                                 \
  } while (0)

namespace {

constexpr int64_t kMaxSample = 65536;
constexpr size_t kFlushBytes = size_t{256} << 20;

__device__ float uniform(uint64_t index, uint64_t seed) {
  uint64_t x = (index + 1) * 0x9E3779B97F4A7C15ull + seed * 0xD1B54A32D192ED03ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  x ^= x >> 31;
  return static_cast<float>(x >> 40) * (2.0f / 16777216.0f) - 1.0f;
}

template <class T>
__global__ void fill(T* data, int64_t count, uint64_t seed) {
  int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    data[i] = static_cast<T>(uniform(i, seed));
  }
}

template <class T>
__global__ void take(const T* data, int64_t count, int64_t samples, float* out) {
  int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < samples) out[i] = static_cast<float>(data[count * i / samples]);
}

struct Tensor {
  std::string dtype;
  int64_t count = 0;
  void* data = nullptr;

  size_t bytes() const { return static_cast<size_t>(count) * (dtype == "float32" ? 4 : 2); }

  explicit Tensor(const std::string& text)
      : dtype(text.substr(0, text.find(':'))),
        count(std::atoll(text.c_str() + text.find(':') + 1)) {
    CHECK(cudaMalloc(&data, bytes()));
  }

  void randomize(uint64_t seed) {
    if (dtype == "float32") fill<<<1024, 256>>>(static_cast<float*>(data), count, seed);
    if (dtype == "float16") fill<<<1024, 256>>>(static_cast<__half*>(data), count, seed);
    if (dtype == "bfloat16") fill<<<1024, 256>>>(static_cast<__nv_bfloat16*>(data), count, seed);
    CHECK(cudaGetLastError());
  }

  std::vector<float> sample() const {
    const int64_t samples = count < kMaxSample ? count : kMaxSample;
    const unsigned blocks = static_cast<unsigned>((samples + 255) / 256);
    float* device = nullptr;
    CHECK(cudaMalloc(&device, samples * sizeof(float)));
    if (dtype == "float32") {
      take<<<blocks, 256>>>(static_cast<const float*>(data), count, samples, device);
    } else if (dtype == "float16") {
      take<<<blocks, 256>>>(static_cast<const __half*>(data), count, samples, device);
    } else {
      take<<<blocks, 256>>>(static_cast<const __nv_bfloat16*>(data), count, samples, device);
    }
    std::vector<float> values(samples);
    CHECK(cudaMemcpy(values.data(), device, samples * sizeof(float), cudaMemcpyDeviceToHost));
    return values;
  }
};

void* symbol(void* library, const std::string& name) {
  void* found = dlsym(library, name.c_str());
  if (found == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(2);
  }
  return found;
}

void launch(collage_cutlass_kernel kernel, const collage_cutlass_call& call) {
  const int status = kernel(&call);
  if (status > 0) CHECK(static_cast<cudaError_t>(status));
  if (status < 0) {
    std::fprintf(stderr, "the kernel refuses its operands (status %d)\n", -status);
    std::exit(3);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 1;
  const int repetitions = std::atoi(argv[4]);
  std::vector<int64_t> sizes;
  std::vector<float> scalars;
  std::vector<Tensor> tensors;
  std::string section;
  for (int i = 5; i < argc; ++i) {
    if (std::strncmp(argv[i], "--", 2) == 0) {
      section = argv[i];
    } else if (section == "--sizes") {
      sizes.push_back(std::atoll(argv[i]));
    } else if (section == "--scalars") {
      scalars.push_back(std::strtof(argv[i], nullptr));
    } else {
      tensors.emplace_back(argv[i]);
    }
  }
  if (tensors.empty()) return 1;
  std::vector<const void*> inputs;
  for (size_t i = 0; i + 1 < tensors.size(); ++i) {
    tensors[i].randomize(i + 1);
    inputs.push_back(tensors[i].data);
  }
  Tensor& output = tensors.back();
  /* Not-a-numbers wherever the kernel writes nothing. */
  CHECK(cudaMemset(output.data, 0xff, output.bytes()));

  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  auto kernel = reinterpret_cast<collage_cutlass_kernel>(symbol(library, argv[2]));
  auto workspace = reinterpret_cast<collage_cutlass_workspace>(
      symbol(library, std::string(argv[2]) + "_workspace"));
  sizes.push_back(0);
  scalars.push_back(0.0f);
  void* scratch = nullptr;
  const size_t scratch_bytes = workspace(sizes.data());
  if (scratch_bytes > 0) CHECK(cudaMalloc(&scratch, scratch_bytes));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaDeviceSynchronize());
  const collage_cutlass_call call = {0,              stream,        scratch,    sizes.data(),
                                     scalars.data(), inputs.data(), output.data};

  launch(kernel, call);
  CHECK(cudaStreamSynchronize(stream));
  const std::vector<float> sample = output.sample();
  std::FILE* file = std::fopen(argv[3], "wb");
  if (file == nullptr || std::fwrite(sample.data(), sizeof(float), sample.size(), file) !=
                             sample.size()) {
    std::perror(argv[3]);
    return 2;
  }
  std::fclose(file);

  void* flush = nullptr;
  CHECK(cudaMalloc(&flush, kFlushBytes));
  std::vector<cudaEvent_t> starts(repetitions), ends(repetitions);
  for (int i = 0; i < repetitions; ++i) {
    CHECK(cudaEventCreate(&starts[i]));
    CHECK(cudaEventCreate(&ends[i]));
  }
  std::puts("ready");
  std::fflush(stdout);
  if (std::getchar() == EOF) return 1;
  for (int i = 0; i < 2; ++i) launch(kernel, call);
  for (int i = 0; i < repetitions; ++i) {
    CHECK(cudaMemsetAsync(flush, i, kFlushBytes, stream));
    CHECK(cudaEventRecord(starts[i], stream));
    launch(kernel, call);
    CHECK(cudaEventRecord(ends[i], stream));
  }
  CHECK(cudaStreamSynchronize(stream));
  std::printf("{\"sec\": [");
  for (int i = 0; i < repetitions; ++i) {
    float ms = 0.0f;
    CHECK(cudaEventElapsedTime(&ms, starts[i], ends[i]));
    std::printf("%s%.9g", i ? ", " : "", ms * 1e-3);
  }
  std::printf("]}\n");
  return 0;
}
