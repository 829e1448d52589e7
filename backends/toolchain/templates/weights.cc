// Weights that lie in files beside the library: mapped read-only when it is loaded, so that all
// processes that run it share them, and on a GPU uploaded once.
//
// The library has room at each weight's symbol that takes nothing in its file, over which the file
// is mapped: code that refers to the symbol does not know. `native.constant_object` makes the room
// and the list of it, this file is compiled once, and what is generated for a module is the list of
// those that are tensors to TVM's virtual machine.
#include "weights.h"

#include <collage_ffi.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <unistd.h>

#include <cstring>
#include <exception>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

using tvm::ffi::Tensor;

// As native.py writes it for each weight, one behind the other.
struct collage_room {
  void* address;
  int64_t bytes;
  char file[48];  // beside this library
};
extern "C" {
extern const collage_room __start_collage_weights[] __attribute__((visibility("hidden"), weak));
extern const collage_room __stop_collage_weights[] __attribute__((visibility("hidden"), weak));
}

namespace {

// What was wrong with the files; a constructor has nobody to tell it.
std::string* trouble;

std::string mapped(const collage_room& room, const std::string& folder) {
  const std::string path = folder + room.file;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return "cannot open '" + path + "': " + std::strerror(errno);
  struct stat found;
  std::string wrong;
  if (fstat(file, &found) != 0 || found.st_size != room.bytes)
    wrong = "'" + path + "' does not have the " + std::to_string(room.bytes) +
            " bytes that were written: copy the bundle whole";
  else if (mmap(room.address, static_cast<size_t>(room.bytes), PROT_READ, MAP_SHARED | MAP_FIXED,
                file, 0) == MAP_FAILED)
    wrong = "cannot map '" + path + "': " + std::strerror(errno);
  close(file);
  return wrong;
}

__attribute__((constructor)) void map_all() {
  Dl_info here;
  if (dladdr(&trouble, &here) == 0 || here.dli_fname == nullptr) {
    trouble = new std::string("this library's folder is not known");
    return;
  }
  std::string folder(here.dli_fname);
  folder.erase(folder.rfind('/') + 1);
  for (auto* room = __start_collage_weights; room != __stop_collage_weights; ++room) {
    std::string wrong = mapped(*room, folder);
    if (!wrong.empty()) {
      trouble = new std::string(wrong);
      return;
    }
  }
}

struct Loaded {
  std::mutex mutex;
  // By device, in the order of collage_weights. Read without the lock by calls that began after
  // they were made: entries are never changed.
  std::map<std::pair<int, int>, std::vector<Tensor>> tensors;
};
Loaded& loaded() {
  static Loaded* all = new Loaded;  // outlives whoever still holds a tensor; see drop_all
  return *all;
}

// Of the call that this thread is in.
thread_local const std::vector<Tensor>* current;

Tensor over(const collage_weight_tensor& weight) {
  auto* managed = new DLManagedTensor{};
  managed->dl_tensor = {const_cast<void*>(weight.data), {kDLCPU, 0}, weight.rank, weight.type,
                        const_cast<int64_t*>(weight.shape), nullptr, 0};
  managed->deleter = [](DLManagedTensor* self) { delete self; };
  return Tensor::FromDLPack(managed, 64, true);
}

Tensor on(const Tensor& host, DLDevice device) {
  if (device.device_type == kDLCPU) return host;
  static const auto alloc =
      tvm::ffi::Function::GetGlobalRequired("runtime.TVMTensorAllocWithScope");
  static const auto copy = tvm::ffi::Function::GetGlobalRequired("runtime.TVMTensorCopyFromTo");
  Tensor made = alloc(tvm::ffi::Shape(host.shape()), host.dtype(), device, nullptr).cast<Tensor>();
  copy(host, made);
  return made;
}

const std::vector<Tensor>* tensors_on(DLDevice device) {
  Loaded& all = loaded();
  std::lock_guard<std::mutex> guard(all.mutex);
  auto [found, missing] =
      all.tensors.try_emplace({static_cast<int>(device.device_type), device.device_id});
  if (missing) {
    try {
      for (int32_t i = 0; i < collage_num_weights; ++i)
        found->second.push_back(on(over(collage_weights[i]), device));
    } catch (...) {
      all.tensors.erase(found);
      throw;
    }
  }
  return &found->second;
}

bool is_there(DLDevice device) {
  if (device.device_type == kDLCPU) return true;
  constexpr int kExist = 0;  // tvm::runtime::DeviceAttrKind
  try {
    static const auto attribute = tvm::ffi::Function::GetGlobalRequired("runtime.GetDeviceAttr");
    return attribute(static_cast<int>(device.device_type), device.device_id, kExist).cast<int>();
  } catch (...) {
    return false;
  }
}

// When the library is closed its weights go with it. When a process ends with the library open,
// CUDA's runtime ended before: to free what lay on a GPU is an error then, raised in a destructor,
// and that aborts. The driver takes such memory back, so it is left.
__attribute__((destructor)) void drop_all() {
  auto& tensors = loaded().tensors;
  for (auto one = tensors.begin(); one != tensors.end();) {
    const DLDevice device{static_cast<DLDeviceType>(one->first.first), one->first.second};
    one = is_there(device) ? tensors.erase(one) : std::next(one);
  }
}

}  // namespace

// Called first in each function, with the kind of device and the function's arguments, which lie on
// it: raises what was wrong with the files, and sees that the weights are there.
COLLAGE_EXPORT(collage_weights_ready) {
  if (trouble != nullptr) return collage_fail("RuntimeError", "%s", trouble->c_str());
  if (num_args < 1 || args[0].type_index != kTVMFFIInt)
    return collage_fail("TypeError", "argument 0 is no kind of device");
  DLDevice device{static_cast<DLDeviceType>(args[0].v_int64), 0};
  for (int32_t i = 1; i < num_args; ++i) {
    const DLTensor* tensor = collage_tensor(&args[i]);
    if (tensor != nullptr && tensor->device.device_type == device.device_type) {
      if (device.device_type != kDLCPU) device = tensor->device;
      break;
    }
  }
  try {
    current = tensors_on(device);
  } catch (const std::exception& err) {
    return collage_fail("RuntimeError", "weights: %s", err.what());
  }
  result->type_index = kTVMFFINone;
  return 0;
}

// A weight by its place in the list, as a tensor.
COLLAGE_EXPORT(collage_weight) {
  COLLAGE_CHECK_ARGS(1);
  if (current == nullptr || args[0].type_index != kTVMFFIInt || args[0].v_int64 < 0 ||
      args[0].v_int64 >= static_cast<int64_t>(current->size()))
    return collage_fail("IndexError", "there is no such weight, or none is ready");
  tvm::ffi::Any weight((*current)[static_cast<size_t>(args[0].v_int64)]);
  *result = tvm::ffi::details::AnyUnsafe::MoveAnyToTVMFFIAny(std::move(weight));
  return 0;
}
