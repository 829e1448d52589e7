// A bundle's manifest, and what it needs of the machine that loads it.
#pragma once

#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/extra/json.h>

#include <cstdint>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "sha256.hpp"

namespace collage {

// A folder that is no bundle, is not whole, or needs something that this machine lacks.
class BundleError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct TensorInfo {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype;

  DLDataType type() const { return tvm::ffi::StringToDLDataType(dtype); }
  size_t elements() const {
    size_t count = 1;
    for (int64_t extent : shape) count *= static_cast<size_t>(extent);
    return count;
  }
  size_t bytes() const {
    DLDataType t = type();
    return elements() * ((static_cast<size_t>(t.bits) * t.lanes + 7) / 8);
  }
};

struct BundleFile {
  std::string file;
  int64_t bytes;
  std::string sha256;
};

struct RequiredLibrary {
  std::string soname, version, package;
};

// Rows that are computed as many as there may be: the result that says how many there are, which
// callers do not see, and which axis of which result is cut to them.
struct Rows {
  size_t count;
  std::vector<std::pair<size_t, size_t>> outputs;
};

struct Manifest {
  std::string library, entry, device = "cpu", architecture;
  // As callers see them.
  std::vector<TensorInfo> inputs, outputs;
  std::vector<Rows> rows;
  std::vector<std::string> cpu_flags, shared_libraries;
  std::vector<RequiredLibrary> required_libraries;
  std::vector<BundleFile> files;
  std::vector<std::string> runtimes;
  // Whether the manifest says which results the model keeps, and which those of `entry` are.
  bool knows_borrowed = false;
  std::set<int64_t> borrowed_outputs;
};

namespace details {

namespace json = tvm::ffi::json;

inline std::string text(const json::Object& object, const char* name) {
  return object.at(tvm::ffi::String(name)).cast<tvm::ffi::String>();
}

inline json::Array list(const json::Object& object, const char* name) {
  auto found = object.find(tvm::ffi::String(name));
  return found == object.end() ? json::Array() : (*found).second.cast<json::Array>();
}

inline std::string text_or(const json::Object& object, const char* name, const char* fallback) {
  auto found = object.find(tvm::ffi::String(name));
  return found == object.end() ? fallback : std::string((*found).second.cast<tvm::ffi::String>());
}

inline std::vector<std::string> texts(const json::Object& object, const char* name) {
  std::vector<std::string> found;
  for (const auto& one : list(object, name)) found.push_back(one.cast<tvm::ffi::String>());
  return found;
}

inline std::vector<TensorInfo> tensors(const json::Object& object, const char* name) {
  std::vector<TensorInfo> found;
  for (const auto& one : list(object, name)) {
    auto fields = one.cast<json::Object>();
    TensorInfo info{text(fields, "name"), {}, text(fields, "dtype")};
    for (const auto& extent : list(fields, "shape")) info.shape.push_back(extent.cast<int64_t>());
    found.push_back(info);
  }
  return found;
}

inline size_t index(const tvm::ffi::Any& value) {
  return static_cast<size_t>(value.cast<int64_t>());
}

// Of the function that is called by default.
inline std::vector<Rows> rows(const json::Object& object) {
  std::vector<Rows> found;
  auto functions = list(object, "functions");
  if (functions.empty()) return found;
  for (const auto& one : list(functions[0].cast<json::Object>(), "rows")) {
    auto fields = one.cast<json::Object>();
    Rows rows{index(fields.at(tvm::ffi::String("count"))), {}};
    for (const auto& pair : list(fields, "outputs")) {
      auto place = pair.cast<json::Array>();
      rows.outputs.emplace_back(index(place[0]), index(place[1]));
    }
    found.push_back(rows);
  }
  return found;
}

}  // namespace details

// Raises BundleError where there is none, or one that this header cannot read.
inline Manifest read_manifest(const std::string& folder) {
  using namespace details;
  std::ifstream file(folder + "/manifest.json", std::ios::binary);
  if (!file) throw BundleError("'" + folder + "' is no bundle: it has no manifest.json");
  std::stringstream content;
  content << file.rdbuf();
  try {
    auto object = json::Parse(content.str()).cast<json::Object>();
    int64_t version = object.at(tvm::ffi::String("schema_version")).cast<int64_t>();
    // Of several functions and shapes the top of the manifest has the one that is called by default.
    if (version < 1 || version > 3)
      throw BundleError("'" + folder + "/manifest.json' has schema version " +
                        std::to_string(version) + "; this header reads 1, 2 and 3");
    Manifest m;
    m.library = text(object, "library");
    m.entry = text(object, "entry");
    m.device = text_or(object, "device", "cpu");
    m.architecture = text(object, "architecture");
    m.inputs = tensors(object, "inputs");
    m.rows = rows(object);
    std::set<size_t> counts;
    for (const Rows& chosen : m.rows) counts.insert(chosen.count);
    const std::vector<TensorInfo> computed = tensors(object, "outputs");
    for (size_t i = 0; i < computed.size(); ++i)
      if (!counts.count(i)) m.outputs.push_back(computed[i]);
    m.cpu_flags = texts(object, "cpu_flags");
    for (const auto& one : list(object, "shared_libraries"))
      m.shared_libraries.push_back(text(one.cast<json::Object>(), "file"));
    for (const auto& one : list(object, "required_libraries")) {
      auto fields = one.cast<json::Object>();
      m.required_libraries.push_back(
          {text(fields, "soname"), text(fields, "version"), text(fields, "package")});
    }
    for (const auto& one : list(object, "files")) {
      auto fields = one.cast<json::Object>();
      m.files.push_back({text(fields, "file"),
                         fields.at(tvm::ffi::String("bytes")).cast<int64_t>(),
                         text(fields, "sha256")});
    }
    auto borrowed = object.find(tvm::ffi::String("borrowed_outputs"));
    if (borrowed != object.end()) {
      if (auto entries = (*borrowed).second.as<json::Object>()) {
        m.knows_borrowed = entries->find(tvm::ffi::String(m.entry)) != entries->end();
        for (const auto& place : list(*entries, m.entry.c_str()))
          m.borrowed_outputs.insert(place.cast<int64_t>());
      }
    }
    auto runtimes = object.find(tvm::ffi::String("runtimes"));
    if (runtimes != object.end())
      for (const auto& [backend, runtime] : (*runtimes).second.cast<json::Object>())
        m.runtimes.push_back(runtime.cast<tvm::ffi::String>());
    return m;
  } catch (const tvm::ffi::Error& err) {
    throw BundleError("'" + folder + "/manifest.json' cannot be read: " + err.message());
  }
}

// The processor's instruction set extensions, as Linux names them; empty where it does not tell.
inline std::set<std::string> cpu_flags_here() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("flags", 0) != 0 && line.rfind("Features", 0) != 0) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    std::set<std::string> found;
    for (std::string word; words >> word;) found.insert(word);
    return found;
  }
  return {};
}

// Sees that all files are there and, with `hashed`, that they are as they were written.
inline void require_whole(const std::string& folder, const Manifest& manifest, bool hashed) {
  for (const BundleFile& wanted : manifest.files) {
    struct stat found;
    if (stat((folder + "/" + wanted.file).c_str(), &found) != 0)
      throw BundleError("bundle '" + folder + "' lacks " + wanted.file + ": copy it whole");
    if (found.st_size != wanted.bytes)
      throw BundleError("bundle '" + folder + "': " + wanted.file + " has " +
                        std::to_string(found.st_size) + " bytes, not " +
                        std::to_string(wanted.bytes) + ": copy the bundle whole");
  }
  if (!hashed) return;
  for (const BundleFile& wanted : manifest.files)
    if (sha256_of_file(folder + "/" + wanted.file) != wanted.sha256)
      throw BundleError("bundle '" + folder + "': " + wanted.file +
                        " is not what was written: copy the bundle whole");
}

// Raises BundleError that names what is missing; loads the libraries that the bundle needs.
inline void check_requirements(const std::string& folder, const Manifest& manifest, bool hashed) {
  struct utsname machine;
  uname(&machine);
  if (manifest.architecture != machine.machine)
    throw BundleError("bundle '" + folder + "' was built for " + manifest.architecture +
                      ", this machine is " + machine.machine);
  auto present = cpu_flags_here();
  std::string missing;
  for (const std::string& flag : manifest.cpu_flags)
    if (!present.empty() && !present.count(flag)) missing += (missing.empty() ? "" : ", ") + flag;
  if (!missing.empty())
    throw BundleError("bundle '" + folder + "' needs the instruction sets " + missing +
                      ", which this CPU lacks");
  require_whole(folder, manifest, hashed);
  for (const std::string& runtime : manifest.runtimes)
    if (runtime.rfind("python:", 0) == 0)
      throw BundleError("bundle '" + folder + "' runs partly through Python (" + runtime +
                        "): leave that target out");
  for (const RequiredLibrary& needed : manifest.required_libraries)
    if (!dlopen(needed.soname.c_str(), RTLD_NOW | RTLD_GLOBAL))
      throw BundleError("bundle '" + folder + "' needs " + needed.soname + " of " +
                        needed.package + " " + needed.version +
                        ": put its folder into LD_LIBRARY_PATH");
  for (const std::string& shipped : manifest.shared_libraries) {
    // The others call the pool of threads without being linked with it.
    const bool pool = shipped.find("/libcollage_pool.so") != std::string::npos;
    if (!dlopen((folder + "/" + shipped).c_str(), RTLD_NOW | (pool ? RTLD_GLOBAL : RTLD_LOCAL)))
      throw BundleError("'" + folder + "/" + shipped + "' cannot be loaded: " + dlerror());
  }
}

}  // namespace collage
