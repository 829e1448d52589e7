/* Builds the plans of a module's graphs on this machine's GPU, at compile time.
 *
 *     planner FOLDER ARCH MEASURED FIRST STEP
 *
 * writes, for each STEP-th graph n from FIRST on, FOLDER/n.plan and FOLDER/n.txt (the workspace's
 * bytes and the engines), or FOLDER/n.error. Exit status 3: there is no GPU of this architecture, and nothing was written.
 */
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>

#include "cudnn_program.h"

extern "C" {
extern const collage_cudnn_graph* const collage_cudnn_graphs[];
extern const int collage_cudnn_num_graphs;
}

namespace {

constexpr int kNoDevice = 3;

void write(const std::string& path, const void* data, size_t bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  if (!file) throw std::runtime_error("cannot write " + path);
}

void write(const std::string& path, const std::string& text) {
  write(path, text.data(), text.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const std::string folder = argv[1];
  const int wanted = std::atoi(argv[2]);
  const bool measured = std::string(argv[3]) == "1";
  const int first = std::atoi(argv[4]), step = std::atoi(argv[5]);
  int count = 0;
  cudaDeviceProp properties{};
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0 ||
      cudaGetDeviceProperties(&properties, 0) != cudaSuccess ||
      properties.major * 10 + properties.minor != wanted) {
    std::fprintf(stderr, "no GPU of compute capability %d\n", wanted);
    return kNoDevice;
  }
  try {
    const cudnnHandle_t handle = collage_cudnn::create_handle();
    for (int n = first; n < collage_cudnn_num_graphs; n += step) {
      const std::string stem = folder + "/" + std::to_string(n);
      try {
        const auto program = collage_cudnn::build({handle}, *collage_cudnn_graphs[n], measured);
        const auto plan = program->save();
        write(stem + ".plan", plan.data(), plan.size());
        write(stem + ".txt",
              std::to_string(program->workspace_bytes()) + " " + program->describe());
      } catch (const std::exception& error) {
        write(stem + ".error", error.what());
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  // Without tearing CUDA down in an order that static objects may not expect.
  std::fflush(nullptr);
  std::_Exit(0);
}
