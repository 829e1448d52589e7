// Entry of every region that oneDNN runs: checks the arguments, builds on the first call, runs.
#include <omp.h>
#include <tvm/ffi/c_api.h>

#include <memory>

#include "collage_onednn.h"
#include "operators/movement.h"

extern "C" void collage_use_thread_pool(void);  // num_threads.c

namespace collage_onednn {
namespace {

std::mutex creation;  // of regions; each has a lock of its own for its calls

std::string shape_text(const int64_t* shape, int64_t rank) {
  std::string text = "(";
  for (int64_t i = 0; i < rank; ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + ")";
}

const DLTensor& tensor_argument(const TVMFFIAny& any, size_t position) {
  if (any.type_index == kTVMFFIDLTensorPtr) return *static_cast<DLTensor*>(any.v_ptr);
  if (any.type_index == kTVMFFITensor)
    return *reinterpret_cast<DLTensor*>(reinterpret_cast<char*>(any.v_obj) + sizeof(TVMFFIObject));
  throw std::runtime_error("argument " + std::to_string(position) + " is no tensor");
}

void check(const DLTensor& t, const dims& wanted, size_t position) {
  bool same = t.ndim == static_cast<int32_t>(wanted.size()) && t.dtype.code == kDLFloat &&
              t.dtype.bits == 32 && t.dtype.lanes == 1;
  for (size_t i = 0; same && i < wanted.size(); ++i) same = t.shape[i] == wanted[i];
  if (!same)
    throw std::runtime_error("argument " + std::to_string(position) + " must be float32 " +
                             shape_text(wanted.data(), static_cast<int64_t>(wanted.size())) +
                             ", not " + shape_text(t.shape, t.ndim));
  if (t.device.device_type != kDLCPU)
    throw std::runtime_error("argument " + std::to_string(position) + " is not in CPU memory");
}

bool has_gaps(const DLTensor& t) {
  if (!t.strides) return false;
  int64_t stride = 1;
  for (int32_t i = t.ndim; i-- > 0; stride *= t.shape[i])
    if (t.shape[i] != 1 && t.strides[i] != stride) return true;
  return false;
}

void copy_strided(Region& region, const DLTensor& t, const dims& d, void* strided, void* packed,
                  bool pack) {
  desc there(d, memory::data_type::f32, dims(t.strides, t.strides + t.ndim));
  memory outside(there, region.engine(), strided);
  memory inside(row_major(d), region.engine(), packed);
  dnnl::stream stream(region.engine());
  if (pack) dnnl::reorder(outside, inside).execute(stream, outside, inside);
  else dnnl::reorder(inside, outside).execute(stream, inside, outside);
  stream.wait();
}

// OpenMP keeps its count for each calling thread: given back, however the call ends.
class CallersThreads {
 public:
  ~CallersThreads() {
    omp_set_dynamic(dynamic_);
    omp_set_num_threads(threads_);
  }

 private:
  int threads_ = omp_get_max_threads(), dynamic_ = omp_get_dynamic();
};

void call(collage_onednn_region* handle, const TVMFFIAny* args, size_t count) {
  CallersThreads given_back;
  collage_use_thread_pool();
  Region* region;
  {
    std::lock_guard<std::mutex> lock(creation);
    if (!handle->state)
      handle->state = new Region(decode_plan(handle->words, handle->num_words), handle->constants);
    region = static_cast<Region*>(handle->state);
  }
  if (count != region->num_inputs() + region->num_outputs())
    throw std::runtime_error("needs " +
                             std::to_string(region->num_inputs() + region->num_outputs()) +
                             " arguments, got " + std::to_string(count));
  // Not of the thread's: its end would need this library, which then is never unloaded.
  std::vector<void*> data(count);
  std::vector<std::pair<size_t, Buffer>> packed;  // only where an argument has gaps
  for (size_t i = 0; i < count; ++i) {
    const DLTensor& t = tensor_argument(args[i], i);
    const dims& wanted = region->argument_dims(i);
    check(t, wanted, i);
    data[i] = static_cast<char*>(t.data) + t.byte_offset;
    if (!has_gaps(t)) continue;
    packed.emplace_back(i, Buffer(row_major(wanted).get_size()));
    void* inside = packed.back().second.data();
    if (i < region->num_inputs()) copy_strided(*region, t, wanted, data[i], inside, true);
    data[i] = inside;
  }
  {
    std::lock_guard<std::mutex> lock(region->mutex());
    region->run(data);
  }
  for (auto& [i, buffer] : packed) {
    if (i < region->num_inputs()) continue;
    const DLTensor& t = tensor_argument(args[i], i);
    copy_strided(*region, t, region->argument_dims(i), static_cast<char*>(t.data) + t.byte_offset,
                 buffer.data(), false);
  }
}

}  // namespace
}  // namespace collage_onednn

extern "C" __attribute__((weak, visibility("hidden"))) int collage_onednn_run(
    collage_onednn_region* region, const void* args, int32_t num_args) {
  std::string reason;
  try {
    collage_onednn::call(region, static_cast<const TVMFFIAny*>(args),
                         static_cast<size_t>(num_args));
    return 0;
  } catch (const dnnl::error& err) {
    reason = std::string(err.what()) + " (oneDNN status " + std::to_string(err.status) + ")";
  } catch (const std::exception& err) {
    reason = err.what();
  } catch (...) {
    reason = "unknown error";
  }
  std::string message = std::string("onednn region '") + region->name + "': " + reason;
  TVMFFIErrorSetRaisedFromCStr("RuntimeError", message.c_str());
  return -1;
}

extern "C" __attribute__((weak, visibility("hidden"))) void collage_onednn_release(
    collage_onednn_region* region) {
  delete static_cast<collage_onednn::Region*>(region->state);
  region->state = nullptr;
}
