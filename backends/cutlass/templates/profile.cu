/* Runs kernel units on random data and times them, one after the other.
 *
 * Prints "started" once it has the device. Each run is then asked for by a line on standard input,
 * its fields separated by tabs:
 *
 *   LIBRARY SYMBOL SAMPLE REPETITIONS SIZE,... SCALAR,... DTYPE:COUNT,...
 *
 * The last tensor is the output. Writes up to 65536 evenly spread elements of the result to SAMPLE,
 * as float32, and prints "ready". What took most of the time until then needs no device to itself:
 * the times are taken once another line arrives, and printed as {"sec": [...]}. Between
 * repetitions the second-level cache is overwritten: in a model, other kernels have used it since.
 * Ends with its input, or with the first failure, which is the last line on standard error.
 */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <sstream>
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
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() { CHECK(cudaFree(data)); }

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
    CHECK(cudaFree(device));
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

/* What every run uses. */
struct Clock {
  cudaStream_t stream = nullptr;
  void* flush = nullptr;
  std::vector<cudaEvent_t> starts, ends;

  Clock() {
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&flush, kFlushBytes));
  }

  void reserve(size_t repetitions) {
    for (std::vector<cudaEvent_t>* events : {&starts, &ends}) {
      while (events->size() < repetitions) {
        cudaEvent_t event;
        CHECK(cudaEventCreate(&event));
        events->push_back(event);
      }
    }
  }
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

/* One run; false when nobody wants its times any longer. */
bool run(const std::vector<std::string>& fields, Clock& clock) {
  const size_t repetitions = std::stoul(fields[3]);
  clock.reserve(repetitions);
  std::vector<int64_t> sizes;
  std::vector<float> scalars;
  std::deque<Tensor> tensors;
  for (const std::string& text : split(fields[4], ',')) sizes.push_back(std::stoll(text));
  for (const std::string& text : split(fields[5], ',')) {
    scalars.push_back(std::strtof(text.c_str(), nullptr));
  }
  for (const std::string& text : split(fields[6], ',')) tensors.emplace_back(text);
  if (tensors.empty()) std::exit(1);
  std::vector<const void*> inputs;
  for (size_t i = 0; i + 1 < tensors.size(); ++i) {
    tensors[i].randomize(i + 1);
    inputs.push_back(tensors[i].data);
  }
  Tensor& output = tensors.back();
  /* Not-a-numbers wherever the kernel writes nothing. */
  CHECK(cudaMemset(output.data, 0xff, output.bytes()));

  void* library = dlopen(fields[0].c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(2);
  }
  auto kernel = reinterpret_cast<collage_cutlass_kernel>(symbol(library, fields[1]));
  auto workspace =
      reinterpret_cast<collage_cutlass_workspace>(symbol(library, fields[1] + "_workspace"));
  sizes.push_back(0);
  scalars.push_back(0.0f);
  void* scratch = nullptr;
  const size_t scratch_bytes = workspace(sizes.data());
  if (scratch_bytes > 0) CHECK(cudaMalloc(&scratch, scratch_bytes));
  CHECK(cudaDeviceSynchronize());
  const collage_cutlass_call call = {0,              clock.stream,  scratch,    sizes.data(),
                                     scalars.data(), inputs.data(), output.data};

  launch(kernel, call);
  CHECK(cudaStreamSynchronize(clock.stream));
  const std::vector<float> sample = output.sample();
  std::FILE* file = std::fopen(fields[2].c_str(), "wb");
  if (file == nullptr || std::fwrite(sample.data(), sizeof(float), sample.size(), file) !=
                             sample.size()) {
    std::perror(fields[2].c_str());
    std::exit(2);
  }
  std::fclose(file);

  std::cout << "ready" << std::endl;
  std::string line;
  if (!std::getline(std::cin, line)) return false;
  for (int i = 0; i < 2; ++i) launch(kernel, call);
  for (size_t i = 0; i < repetitions; ++i) {
    CHECK(cudaMemsetAsync(clock.flush, static_cast<int>(i), kFlushBytes, clock.stream));
    CHECK(cudaEventRecord(clock.starts[i], clock.stream));
    launch(kernel, call);
    CHECK(cudaEventRecord(clock.ends[i], clock.stream));
  }
  CHECK(cudaStreamSynchronize(clock.stream));
  std::ostringstream times;
  times.precision(9);
  for (size_t i = 0; i < repetitions; ++i) {
    float ms = 0.0f;
    CHECK(cudaEventElapsedTime(&ms, clock.starts[i], clock.ends[i]));
    times << (i ? ", " : "") << ms * 1e-3;
  }
  std::cout << "{\"sec\": [" << times.str() << "]}" << std::endl;
  /* The library stays: unloading it would cost more than its memory. */
  CHECK(cudaFree(scratch));
  return true;
}

}  // namespace

int main() {
  Clock clock;
  std::cout << "started" << std::endl;
  std::string line;
  bool wanted = static_cast<bool>(std::getline(std::cin, line));
  while (wanted) {
    const std::vector<std::string> fields = split(line, '\t');
    if (fields.size() != 7) return 1;
    wanted = run(fields, clock) && std::getline(std::cin, line);
  }
  return 0;
}
