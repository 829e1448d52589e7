// What collage/bundle.h declares, by way of collage/bundle.hpp: the one file to compile for C.
#include <collage/bundle.h>

#include <collage/bundle.hpp>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

using collage::Tensor;
using collage::TensorInfo;

namespace {

std::vector<collage_tensor> described(const std::vector<TensorInfo>& infos) {
  std::vector<collage_tensor> found;
  for (const TensorInfo& info : infos)
    found.push_back({info.name.c_str(), info.dtype.c_str(), info.shape.data(), info.shape.size(),
                     info.bytes()});
  return found;
}

}  // namespace

struct collage_bundle {
  collage_bundle(const char* folder, collage::LoadOptions options)
      : bundle(folder, options), inputs(described(bundle.inputs())),
        outputs(described(bundle.outputs())) {}

  collage::Bundle bundle;
  std::vector<collage_tensor> inputs, outputs;
};

struct collage_context {
  // The last call's results, as they came out.
  void has(const std::vector<Tensor>& given) {
    infos = of->bundle.outputs();
    for (size_t o = 0; o < given.size(); ++o)
      infos.at(o).shape.assign(given[o].shape().begin(), given[o].shape().end());
    results = described(infos);
  }

  const collage_bundle* of;
  collage::Context context;
  std::vector<TensorInfo> infos;
  std::vector<collage_tensor> results;
};

namespace {

thread_local std::string last_error;

// No exception may pass C's frames.
template <typename Body>
int guarded(Body body) {
  try {
    body();
    return 0;
  } catch (const std::exception& err) {
    last_error = err.what();
  } catch (...) {
    last_error = "an exception of an unknown kind";
  }
  return -1;
}

Tensor on_host(const void* data, const TensorInfo& info) {
  // The model reads it only: what it would write into it copies first.
  if (reinterpret_cast<uintptr_t>(data) % collage::kAlignment == 0 && info.bytes())
    return collage::over(const_cast<void*>(data), info);
  Tensor made = collage::empty(info);
  if (info.bytes()) std::memcpy(made.data_ptr(), data, info.bytes());
  return made;
}

// Throws where a result needs more room than its caller was told of.
void require_room(const collage_tensor& result, const TensorInfo& most) {
  if (result.bytes > most.bytes())
    throw collage::BundleError("output '" + most.name + "' is not as the manifest says");
}

const collage_tensor* at(const std::vector<collage_tensor>& infos, size_t index) {
  return index < infos.size() ? &infos[index] : nullptr;
}

}  // namespace

int collage_bundle_open_with(const char* folder, int verify, int device_id,
                             collage_bundle** bundle) {
  return guarded([&] { *bundle = new collage_bundle(folder, {verify != 0, device_id}); });
}

int collage_bundle_open(const char* folder, collage_bundle** bundle) {
  return collage_bundle_open_with(folder, 1, 0, bundle);
}

void collage_bundle_close(collage_bundle* bundle) { delete bundle; }

size_t collage_bundle_num_inputs(const collage_bundle* bundle) { return bundle->inputs.size(); }

size_t collage_bundle_num_outputs(const collage_bundle* bundle) { return bundle->outputs.size(); }

const collage_tensor* collage_bundle_input(const collage_bundle* bundle, size_t index) {
  return at(bundle->inputs, index);
}

const collage_tensor* collage_bundle_output(const collage_bundle* bundle, size_t index) {
  return at(bundle->outputs, index);
}

int collage_context_new(const collage_bundle* bundle, collage_context** context) {
  return guarded([&] { *context = new collage_context{bundle, bundle->bundle.context(), {}, {}}; });
}

void collage_context_free(collage_context* context) { delete context; }

int collage_context_run(collage_context* context, const void* const* inputs,
                        void* const* outputs) {
  return guarded([&] {
    const collage::Bundle& bundle = context->of->bundle;
    const DLDevice device = bundle.device();
    const bool elsewhere = device.device_type != kDLCPU;
    std::vector<Tensor> given;
    for (size_t i = 0; i < bundle.inputs().size(); ++i) {
      Tensor input = on_host(inputs[i], bundle.inputs()[i]);
      given.push_back(elsewhere ? collage::details::moved(input, device) : input);
    }
    std::vector<Tensor> results = context->context.run(given);
    context->has(results);
    for (size_t o = 0; o < results.size(); ++o) {
      const Tensor result =
          elsewhere ? collage::details::moved(results[o], DLDevice{kDLCPU, 0}) : results[o];
      const collage_tensor& info = context->results[o];
      require_room(info, bundle.outputs()[o]);
      if (info.bytes)
        std::memcpy(outputs[o], collage::details::begin_of(result), info.bytes);
    }
  });
}

const collage_tensor* collage_context_result(const collage_context* context, size_t index) {
  return at(context->results, index);
}

int collage_context_run_on(collage_context* context, const void* const* inputs,
                           void* const* outputs, void* stream) {
  return guarded([&] {
    const collage::Bundle& bundle = context->of->bundle;
    const DLDevice device = bundle.device();
    if (device.device_type != kDLCUDA)
      throw collage::BundleError("the bundle is for a CPU, which has no streams");
    collage::details::InOrder order(device, stream);
    std::vector<Tensor> given;
    for (size_t i = 0; i < bundle.inputs().size(); ++i)
      given.push_back(collage::over(const_cast<void*>(inputs[i]), bundle.inputs()[i], device));
    std::vector<Tensor> results = context->context.run(given);
    context->has(results);
    for (size_t o = 0; o < results.size(); ++o) {
      const TensorInfo& info = context->infos[o];
      require_room(context->results[o], bundle.outputs()[o]);
      if (info.bytes())
        collage::details::runtime_function("runtime.TVMTensorCopyFromTo")(
            results[o], collage::over(outputs[o], info, device));
    }
    order.finish();
  });
}

const char* collage_last_error(void) { return last_error.c_str(); }
