// Runs a bundle with one square input and one output of its shape on streams of the caller: each
// result is the next call's input, with nothing waited for in between.
//
//   stream_results BUNDLE
#include <collage/bundle.h>

#include <chrono>
#include <collage/bundle.hpp>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <vector>

using collage::Tensor;

namespace {

constexpr int kCalls = 40;

double seconds() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

using collage::details::moved;

void wait_for(DLDevice device, int64_t stream) {
  collage::details::runtime_function("runtime.Device_StreamSync")(device, stream);
}

void checked(int code) {
  if (code) throw std::runtime_error(collage_last_error());
}

int run(const char* folder) {
  collage::Bundle bundle(folder);
  const DLDevice device = bundle.device(), host{kDLCPU, 0};
  const collage::TensorInfo info = bundle.inputs().at(0);
  Tensor x = collage::empty(info);
  for (size_t i = 0; i < info.elements(); ++i)
    static_cast<float*>(x.data_ptr())[i] = static_cast<float>(i % 7) / 8 - 0.25f;
  collage_bundle* opened;
  collage_context* context_c;
  checked(collage_bundle_open(folder, &opened));
  checked(collage_context_new(opened, &context_c));
  if (device.device_type == kDLCPU) {
    const void* inputs[] = {x.data_ptr()};
    void* outputs[] = {x.data_ptr()};
    if (collage_context_run_on(context_c, inputs, outputs, &opened)) puts(collage_last_error());
    bundle.context().run({x}, &opened);
    return 0;
  }
  auto create = collage::details::runtime_function("runtime.Device_StreamCreate");
  const int64_t first = create(device).cast<int64_t>(), second = create(device).cast<int64_t>();
  auto handle = [](int64_t stream) { return reinterpret_cast<void*>(stream); };

  collage::Context context = bundle.context();
  const Tensor begin = moved(x, device);
  Tensor want = begin;
  for (int call = 0; call < kCalls; ++call) want = context.run({want})[0];
  want = moved(want, host);

  // Each result is kept until all is done: what is freed serves the next call.
  std::vector<Tensor> kept{begin};
  const double started = seconds();
  for (int call = 0; call < kCalls; ++call)
    kept.push_back(context.run({kept.back()}, handle(first))[0]);
  const double returned = seconds() - started;
  wait_for(device, first);
  const double done = seconds() - started;
  Tensor found = moved(kept.back(), host);
  if (std::memcmp(found.data_ptr(), want.data_ptr(), info.bytes()) != 0)
    throw std::runtime_error("on a stream the results are others");
  std::printf("C++ agrees; %s\n", returned < done / 2 ? "calls return at once" : "calls wait");

  std::vector<Tensor> places{begin};
  for (int call = 0; call < kCalls; ++call) places.push_back(moved(x, device));
  for (int call = 0; call < kCalls; ++call) {
    const void* inputs[] = {places[call].data_ptr()};
    void* outputs[] = {places[call + 1].data_ptr()};
    checked(collage_context_run_on(context_c, inputs, outputs, handle(second)));
  }
  wait_for(device, second);
  found = moved(places.back(), host);
  if (std::memcmp(found.data_ptr(), want.data_ptr(), info.bytes()) != 0)
    throw std::runtime_error("in C the results are others");
  std::printf("C agrees\n");
  collage_context_free(context_c);
  collage_bundle_close(opened);
  return 0;
}

}  // namespace

int main(int, char** words) {
  try {
    return run(words[1]);
  } catch (const std::exception& err) {
    std::fprintf(stderr, "error: %s\n", err.what());
    return 1;
  }
}
