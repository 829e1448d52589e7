// Run a bundle without Python, from several threads, and print what examples/load_bundle.py prints.
//
//   run_bundle BUNDLE [--threads N] [--runs N] [--input NAME=FILE]... [--output NAME=FILE]...
//
// Files hold a tensor's elements as they lie in memory (numpy's array.tofile and np.fromfile).
// Inputs without a file are filled with 0, 1, 2, 0, 1, 2, ...
#include <collage/bundle.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using collage::Tensor;
using collage::TensorInfo;

namespace {

struct Arguments {
  std::string bundle;
  int threads = 4, runs = 2;
  std::map<std::string, std::string> inputs, outputs;
};

Arguments parse(int count, char** words) {
  Arguments given;
  auto pair = [](const std::string& text) {
    size_t equals = text.rfind('=');
    if (equals == std::string::npos) throw std::invalid_argument("write NAME=FILE, not " + text);
    return std::make_pair(text.substr(0, equals), text.substr(equals + 1));
  };
  for (int i = 1; i < count; ++i) {
    std::string word = words[i];
    if (word.rfind("--", 0) != 0) {
      given.bundle = word;
      continue;
    }
    if (i + 1 == count) throw std::invalid_argument(word + " needs a value");
    std::string value = words[++i];
    if (word == "--threads") given.threads = std::stoi(value);
    else if (word == "--runs") given.runs = std::stoi(value);
    else if (word == "--input") given.inputs.insert(pair(value));
    else if (word == "--output") given.outputs.insert(pair(value));
    else throw std::invalid_argument("unknown option " + word);
  }
  if (given.bundle.empty()) throw std::invalid_argument("which bundle?");
  return given;
}

void require_known(const std::map<std::string, std::string>& files,
                   const std::vector<TensorInfo>& infos) {
  for (auto& [name, _] : files) {
    bool known = false;
    for (const TensorInfo& info : infos) known = known || info.name == name;
    if (!known) throw std::invalid_argument("the model has no '" + name + "'");
  }
}

void fill(Tensor& tensor, const TensorInfo& info) {
  if (info.dtype == "float32")
    for (size_t i = 0; i < info.elements(); ++i)
      static_cast<float*>(tensor.data_ptr())[i] = static_cast<float>(i % 3);
  else if (info.dtype == "int64")
    for (size_t i = 0; i < info.elements(); ++i)
      static_cast<int64_t*>(tensor.data_ptr())[i] = static_cast<int64_t>(i % 3);
  else
    std::memset(tensor.data_ptr(), 0, info.bytes());
}

void read(Tensor& tensor, const TensorInfo& info, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  file.read(static_cast<char*>(tensor.data_ptr()), static_cast<std::streamsize>(info.bytes()));
  if (!file) throw std::runtime_error("'" + path + "' holds less than " + info.name + " needs");
}

void print(const TensorInfo& info, const Tensor& tensor) {
  std::printf("%s %s%s:", info.name.c_str(), info.dtype.c_str(),
              collage::details::shape_text(info.shape.data(), info.shape.size()).c_str());
  if (info.dtype == "float32") {
    double sum = 0;
    for (size_t i = 0; i < info.elements(); ++i) sum += static_cast<float*>(tensor.data_ptr())[i];
    std::printf(" mean %.6g", info.elements() ? sum / static_cast<double>(info.elements()) : 0.0);
  }
  std::printf("\n");
}

int run(const Arguments& given) {
  collage::Bundle bundle(given.bundle);
  if (bundle.device().device_type != kDLCPU) throw std::runtime_error("this example is for a CPU");
  require_known(given.inputs, bundle.inputs());
  require_known(given.outputs, bundle.outputs());
  std::vector<Tensor> inputs;
  for (const TensorInfo& info : bundle.inputs()) {
    inputs.push_back(collage::empty(info));
    auto file = given.inputs.find(info.name);
    if (file == given.inputs.end()) fill(inputs.back(), info);
    else read(inputs.back(), info, file->second);
  }
  // Every thread has a context of its own; weights and inputs are shared.
  size_t threads = static_cast<size_t>(given.threads);
  std::vector<std::vector<Tensor>> results(threads);
  std::vector<std::exception_ptr> failures(threads);
  std::vector<std::thread> running;
  for (size_t i = 0; i < threads; ++i)
    running.emplace_back([&, i] {
      try {
        collage::Context context = bundle.context();
        for (int run = 0; run < given.runs; ++run) results[i] = context.run(inputs);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    });
  for (std::thread& thread : running) thread.join();
  for (auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
  for (size_t o = 0; o < bundle.outputs().size(); ++o) {
    // Of what came out: data may choose its rows.
    TensorInfo info = bundle.outputs()[o];
    info.shape.assign(results[0][o].shape().begin(), results[0][o].shape().end());
    for (auto& result : results)
      if (tvm::ffi::GetDataSize(*result[o].GetDLTensorPtr()) != info.bytes() ||
          std::memcmp(result[o].data_ptr(), results[0][o].data_ptr(), info.bytes()) != 0)
        throw std::runtime_error("threads disagree about " + info.name);
    print(info, results[0][o]);
    auto file = given.outputs.find(info.name);
    if (file == given.outputs.end()) continue;
    std::ofstream out(file->second, std::ios::binary);
    out.write(static_cast<char*>(results[0][o].data_ptr()),
              static_cast<std::streamsize>(info.bytes()));
    if (!out) throw std::runtime_error("cannot write '" + file->second + "'");
  }
  std::printf("%zu threads agree\n", threads);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  // Where other programs want the cores too, kernels' threads must not wait for each other awake.
  // OpenMP reads it when the bundle brings it.
  setenv("GOMP_SPINCOUNT", "12000", 0);
  try {
    return run(parse(count, words));
  } catch (const std::exception& err) {
    std::fprintf(stderr, "error: %s\n", err.what());
    return 1;
  }
}
