// Load a bundle and run it, in C++17, with TVM's runtime and no Python:
//
//   collage::Bundle bundle("resnet50.bundle");
//   collage::Context context = bundle.context();             // one per thread
//   tvm::ffi::Tensor image = collage::empty(bundle.inputs()[0]);
//   std::vector<tvm::ffi::Tensor> outputs = context.run({image});
//
// `collage native --cflags --ldflags` prints what a compiler needs.
#pragma once

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "manifest.hpp"

namespace collage {

using tvm::ffi::Tensor;

// TVM's generated code loads vectors with this alignment.
constexpr size_t kAlignment = 64;

namespace details {

struct HostMemory {
  void AllocData(DLTensor* tensor) {
    size_t bytes = tvm::ffi::GetDataSize(*tensor);
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    tensor->data = std::aligned_alloc(kAlignment, bytes ? bytes : kAlignment);
    if (!tensor->data) throw std::bad_alloc();
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

inline std::string shape_text(const int64_t* extents, size_t rank) {
  std::string text = "[";
  for (size_t i = 0; i < rank; ++i) text += (i ? ", " : "") + std::to_string(extents[i]);
  return text + "]";
}

inline void flatten(const tvm::ffi::Any& value, std::vector<Tensor>* found) {
  if (auto tensor = value.as<Tensor>()) {
    found->push_back(*tensor);
  } else {
    for (const auto& one : value.cast<tvm::ffi::Array<tvm::ffi::Any>>()) flatten(one, found);
  }
}

// A file's path, written otherwise wherever another file lies there: libraries are loaded by the
// text of their paths, and a program that has loaded one would have it again after it was replaced.
inline std::string spelled_by_file(const std::string& path) {
  struct stat found;
  if (stat(path.c_str(), &found) != 0) throw BundleError("there is no file '" + path + "'");
  size_t name = path.rfind('/') + 1;
  std::string spelled = path.substr(0, name);
  for (auto number = found.st_ino; number; number /= 2) spelled += number % 2 ? "./" : "/";
  return spelled + path.substr(name);
}

inline tvm::ffi::Function runtime_function(const char* name) {
  return tvm::ffi::Function::GetGlobalRequired(name);
}

inline Tensor allocated(const tvm::ffi::Shape& shape, DLDataType type, DLDevice device) {
  return runtime_function("runtime.TVMTensorAllocWithScope")(shape, type, device, nullptr)
      .cast<Tensor>();
}

inline Tensor moved(const Tensor& tensor, DLDevice device) {
  Tensor made = allocated(tvm::ffi::Shape(tensor.shape()), tensor.dtype(), device);
  if (tvm::ffi::GetDataSize(*tensor.GetDLTensorPtr()))
    runtime_function("runtime.TVMTensorCopyFromTo")(tensor, made);
  return made;
}

inline Tensor copied(const Tensor& tensor) { return moved(tensor, tensor.device()); }

inline const char* begin_of(const Tensor& tensor) {
  return static_cast<const char*>(tensor.data_ptr()) + tensor.GetDLTensorPtr()->byte_offset;
}

// The first slices of a tensor, through the host.
inline Tensor cut(const Tensor& tensor, size_t axis, int64_t extent) {
  const DLDevice host{kDLCPU, 0}, device = tensor.device();
  const bool elsewhere = device.device_type != kDLCPU;
  const Tensor whole = elsewhere ? moved(tensor, host) : tensor;
  std::vector<int64_t> shape(whole.shape().begin(), whole.shape().end());
  if (axis >= shape.size() || extent < 0 || extent > shape[axis])
    throw BundleError("a result of shape " + std::to_string(shape.size()) + "-d cannot have " +
                      std::to_string(extent) + " slices on axis " + std::to_string(axis) +
                      ": the manifest is not this library's; export the bundle again");
  shape[axis] = extent;
  Tensor part = allocated(tvm::ffi::Shape(shape), whole.dtype(), host);
  size_t blocks = 1, bytes = (static_cast<size_t>(whole.dtype().bits) + 7) / 8;
  for (size_t i = 0; i < axis; ++i) blocks *= static_cast<size_t>(shape[i]);
  for (size_t i = axis + 1; i < shape.size(); ++i) bytes *= static_cast<size_t>(shape[i]);
  const size_t taken = bytes * static_cast<size_t>(extent);
  const size_t step = bytes * static_cast<size_t>(whole.shape()[axis]);
  for (size_t block = 0; taken && block < blocks; ++block)
    std::memcpy(static_cast<char*>(part.data_ptr()) + block * taken,
                begin_of(whole) + block * step, taken);
  return elsewhere ? moved(part, device) : part;
}

inline int64_t number(const Tensor& tensor) {
  const Tensor host = tensor.device().device_type == kDLCPU ? tensor : moved(tensor, {kDLCPU, 0});
  if (host.dtype().bits == 32) {
    int32_t value;
    std::memcpy(&value, begin_of(host), sizeof value);
    return value;
  }
  int64_t value;
  std::memcpy(&value, begin_of(host), sizeof value);
  return value;
}

inline bool overlap(const Tensor& one, const Tensor& other) {
  auto end = [](const Tensor& t) {
    return begin_of(t) + tvm::ffi::GetDataSize(*t.GetDLTensorPtr());
  };
  return begin_of(one) < end(other) && begin_of(other) < end(one);
}

// While it lives, what a thread does comes after what the caller's stream held, and before what that
// is given afterwards. Models run on CUDA's default stream, as TVM's own copies do, so that one and
// the caller's wait for each other by events; the host does not. Nothing where there is no stream.
class InOrder {
 public:
  InOrder(DLDevice device, void* stream) : device_(device), stream_(stream) {
    if (!stream_) return;
    if (device_.device_type != kDLCUDA)
      throw BundleError("the bundle is for a CPU, which has no streams");
    wait(handle(), 0);
    TVMFFIEnvSetStream(device_.device_type, device_.device_id, nullptr, &before_);
  }
  ~InOrder() {
    if (stream_) TVMFFIEnvSetStream(device_.device_type, device_.device_id, before_, nullptr);
  }
  // Not by the destructor, for it may fail; a call that failed has nothing to wait for.
  void finish() const {
    if (stream_) wait(0, handle());
  }
  InOrder(const InOrder&) = delete;
  InOrder& operator=(const InOrder&) = delete;

 private:
  int64_t handle() const { return static_cast<int64_t>(reinterpret_cast<intptr_t>(stream_)); }
  void wait(int64_t before, int64_t after) const {
    runtime_function("runtime.Device_StreamSyncFromTo")(device_, before, after);
  }
  DLDevice device_;
  void* stream_;
  TVMFFIStreamHandle before_ = nullptr;
};

}  // namespace details

// Host memory of an input's or output's shape, aligned so that it is used without a copy.
inline Tensor empty(const TensorInfo& info) {
  return Tensor::FromNDAlloc(details::HostMemory(), tvm::ffi::Shape(info.shape), info.type(),
                             DLDevice{kDLCPU, 0});
}

// A tensor over the caller's own memory, which has to be aligned to 64 bytes and to outlive it; on the
// host, or on the device that is named.
inline Tensor over(void* data, const TensorInfo& info, DLDevice device = {kDLCPU, 0}) {
  auto* managed = new DLManagedTensor{};
  auto* shape = new std::vector<int64_t>(info.shape);
  managed->dl_tensor = {data, device, static_cast<int32_t>(shape->size()), info.type(),
                        shape->data(), nullptr, 0};
  managed->manager_ctx = shape;
  managed->deleter = [](DLManagedTensor* self) {
    delete static_cast<std::vector<int64_t>*>(self->manager_ctx);
    delete self;
  };
  try {
    return Tensor::FromDLPack(managed, kAlignment, true);
  } catch (...) {
    managed->deleter(managed);
    throw;
  }
}

// The registers of one call. Contexts of one bundle share code and weights; each thread has its own.
class Context {
 public:
  // Tensors on the bundle's device, one per input in the manifest's order. The results are the
  // caller's to write into: what the manifest names in `borrowed_outputs`, and what shares memory
  // with an input or another result, is copied. Where data choose the rows of a result, it has those
  // that there are, and the manifest's shape is the most. On a GPU with a cudaStream_t the call comes after
  // what the stream holds and before what it is given next, and returns at once.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs, void* stream = nullptr) {
    details::InOrder order(device_, stream);
    std::vector<Tensor> results = computed(inputs);
    order.finish();
    return results;
  }

 private:
  friend class Bundle;
  Context(tvm::ffi::Module machine, tvm::ffi::Function entry,
          std::shared_ptr<const Manifest> manifest, DLDevice device)
      : machine_(std::move(machine)), entry_(std::move(entry)), manifest_(std::move(manifest)),
        device_(device) {}

  std::vector<Tensor> computed(const std::vector<Tensor>& inputs) {
    const std::vector<TensorInfo>& infos = manifest_->inputs;
    if (inputs.size() != infos.size())
      throw BundleError("the model takes " + std::to_string(infos.size()) + " inputs, not " +
                        std::to_string(inputs.size()));
    std::vector<tvm::ffi::AnyView> arguments;
    for (size_t i = 0; i < inputs.size(); ++i) {
      check(infos[i], inputs[i]);
      arguments.emplace_back(inputs[i]);
    }
    tvm::ffi::Any result;
    entry_.CallPacked(tvm::ffi::PackedArgs(arguments.data(), static_cast<int>(arguments.size())),
                      &result);
    std::vector<Tensor> outputs;
    details::flatten(result, &outputs);
    std::vector<Tensor> taken(inputs), own;
    for (size_t i = 0; i < outputs.size(); ++i) {
      bool copy = !manifest_->knows_borrowed || manifest_->borrowed_outputs.count(i);
      for (const Tensor& other : taken) copy = copy || details::overlap(outputs[i], other);
      taken.push_back(outputs[i]);
      own.push_back(copy ? details::copied(outputs[i]) : outputs[i]);
    }
    return manifest_->rows.empty() ? own : chosen(own);
  }

  // Results with the rows that there are, without the numbers of them.
  std::vector<Tensor> chosen(const std::vector<Tensor>& results) const {
    std::vector<Tensor> cut(results), kept;
    std::set<size_t> counts;
    for (const Rows& rows : manifest_->rows) {
      counts.insert(rows.count);
      const int64_t count = details::number(results.at(rows.count));
      for (const auto& [output, axis] : rows.outputs)
        cut.at(output) = details::cut(cut.at(output), axis, count);
    }
    for (size_t i = 0; i < cut.size(); ++i)
      if (!counts.count(i)) kept.push_back(cut[i]);
    return kept;
  }

  static void check(const TensorInfo& info, const Tensor& tensor) {
    const DLTensor& given = *tensor.GetDLTensorPtr();
    bool same = static_cast<size_t>(given.ndim) == info.shape.size();
    for (size_t i = 0; same && i < info.shape.size(); ++i) same = given.shape[i] == info.shape[i];
    DLDataType type = info.type();
    same = same && given.dtype.code == type.code && given.dtype.bits == type.bits &&
           given.dtype.lanes == type.lanes;
    if (!same)
      throw BundleError("input '" + info.name + "' must be " + info.dtype +
                        details::shape_text(info.shape.data(), info.shape.size()) + ", not " +
                        std::string(tvm::ffi::DLDataTypeToString(given.dtype)) +
                        details::shape_text(given.shape, static_cast<size_t>(given.ndim)));
  }

  tvm::ffi::Module machine_;
  tvm::ffi::Function entry_;
  std::shared_ptr<const Manifest> manifest_;
  DLDevice device_;
};

struct LoadOptions {
  bool verify = true;  // hold files against their hashes; their sizes are looked at anyway
  int device_id = 0;
};

class Bundle {
 public:
  // Raises BundleError that says what is missing, before anything of the bundle runs.
  explicit Bundle(const std::string& folder, LoadOptions options = {})
      : folder_(absolute(folder)),
        manifest_(std::make_shared<const Manifest>(read_manifest(folder_))),
        options_(options),
        module_(load(folder_, *manifest_, options)) {}

  const Manifest& manifest() const { return *manifest_; }
  const std::vector<TensorInfo>& inputs() const { return manifest_->inputs; }
  const std::vector<TensorInfo>& outputs() const { return manifest_->outputs; }
  DLDevice device() const { return {on_cuda() ? kDLCUDA : kDLCPU, options_.device_id}; }

  // Cheap on a CPU; on a GPU each uploads the constants of TVM's own kernels. Any thread may ask.
  Context context() const {
    std::lock_guard<std::mutex> lock(*mutex_);
    auto machine = function(module_, "vm_load_executable")().cast<tvm::ffi::Module>();
    constexpr int pooled = 2;
    // As TVM's own programs ask for it: what is not on the device is on the host.
    if (on_cuda())
      function(machine, "vm_initialization")(static_cast<int>(kDLCUDA), options_.device_id, pooled,
                                             static_cast<int>(kDLCPU), 0, pooled);
    else
      function(machine, "vm_initialization")(static_cast<int>(kDLCPU), 0, pooled);
    return Context(machine, function(machine, manifest_->entry.c_str()), manifest_, device());
  }

 private:
  bool on_cuda() const { return manifest_->device == "cuda"; }

  static std::string absolute(const std::string& folder) {
    char* path = realpath(folder.c_str(), nullptr);
    if (!path) throw BundleError("there is no folder '" + folder + "'");
    std::string found(path);
    std::free(path);
    return found;
  }

  static tvm::ffi::Module load(const std::string& folder, const Manifest& manifest,
                               const LoadOptions& options) {
    check_requirements(folder, manifest, options.verify);
    // Only what sorts, and some more, needs it, and says so if it is not there.
    dlopen("libtvm_runtime_extra.so", RTLD_NOW | RTLD_GLOBAL);
    if (manifest.device != "cpu" && manifest.device != "cuda")
      throw BundleError("bundle '" + folder + "' is for the device " + manifest.device);
    if (manifest.device == "cuda" && !dlopen("libtvm_runtime_cuda.so", RTLD_NOW | RTLD_GLOBAL))
      throw BundleError(std::string("TVM's runtime for CUDA cannot be loaded: ") + dlerror());
    return tvm::ffi::Module::LoadFromFile(
        details::spelled_by_file(folder + "/" + manifest.library));
  }

  static tvm::ffi::Function function(const tvm::ffi::Module& module, const char* name) {
    auto found = module->GetFunction(name);
    if (!found.has_value()) throw BundleError(std::string("the library has no '") + name + "'");
    return found.value();
  }

  std::string folder_;
  std::shared_ptr<const Manifest> manifest_;
  LoadOptions options_;
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
  tvm::ffi::Module module_;
};

}  // namespace collage
