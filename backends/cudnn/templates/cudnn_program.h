/* cuDNN programs: a graph's plans, built or loaded, and what one partition binds to them.
 *
 * Knows nothing of TVM, so that the same code builds plans at compile time (cudnn_planner.cc) and
 * runs them in a model (cudnn_entry.cc).
 */
#ifndef COLLAGE_CUDNN_PROGRAM_H_
#define COLLAGE_CUDNN_PROGRAM_H_

#include <cudnn_backend.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "collage_cudnn.h"

namespace collage_cudnn {

/* What went wrong, in words. */
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/* One partition's pointers, bound to a program's plans; made anew only when a pointer changes. */
class Binding {
 public:
  virtual ~Binding() = default;
};

/* What plans are for: the handle's device, or one that is described and need not be here. */
struct Device {
  cudnnHandle_t handle = nullptr;
  cudnnBackendDescriptor_t properties = nullptr;
};

class Program {
 public:
  virtual ~Program() = default;

  /* Enqueues the work on the handle's stream. `slots` are device pointers in the graph's order. */
  virtual void run(cudnnHandle_t handle, std::unique_ptr<Binding>& binding, void* const* slots,
                   void* workspace) = 0;
  virtual size_t workspace_bytes() const = 0;
  /* The chosen engines, for people. */
  virtual std::string describe() const = 0;
  /* What `load` takes. Throws Failure where cuDNN cannot serialize a plan. */
  virtual std::vector<unsigned char> save() const = 0;
};

/* Builds the plans: the first that cuDNN's heuristics propose and that can be built, or, where
 * `measured`, the fastest of the first few, timed on the current device. */
std::unique_ptr<Program> build(const Device& device, const collage_cudnn_graph& graph,
                               bool measured);

/* The program that `save` wrote, or null when it was built with another version of cuDNN or for
 * another device, or cannot be read. */
std::unique_ptr<Program> load(cudnnHandle_t handle, const collage_cudnn_graph& graph,
                              const unsigned char* plan, size_t bytes);

/* A new handle on the current device. */
cudnnHandle_t create_handle();

}  // namespace collage_cudnn

#endif  // COLLAGE_CUDNN_PROGRAM_H_
