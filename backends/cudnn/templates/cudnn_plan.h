/* cuDNN's execution plans of an operation graph: proposed by its heuristics, or read from text. */
#ifndef COLLAGE_CUDNN_PLAN_H_
#define COLLAGE_CUDNN_PLAN_H_

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cudnn_graph.h"

namespace collage_cudnn {

/* An engine with its knobs, not built yet. */
class Engine {
 public:
  explicit Engine(Descriptor config) : config_(std::move(config)) {}

  const Descriptor& config() const { return config_; }

  int64_t workspace_bytes() const {
    return config_.get<int64_t>(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE);
  }

  bool has_any(const std::vector<cudnnBackendNumericalNote_t>& unwanted) const {
    std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
    notes = engine().get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, notes);
    return std::find_first_of(notes.begin(), notes.end(), unwanted.begin(), unwanted.end()) !=
           notes.end();
  }

  /* For people: the engine's number and its knobs. */
  std::string name() const {
    std::string text =
        "eng" + std::to_string(engine().get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
    for (const Descriptor& knob :
         filled(config_, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
                CUDNN_KNOB_TYPE_COUNTS)) {
      const int type = knob.get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE);
      const auto value = knob.get<int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
      text += "_k" + std::to_string(type) + "=" + std::to_string(value);
    }
    return text;
  }

  /* An attribute that is descriptors: they are made by us and filled by cuDNN. */
  static std::vector<Descriptor> filled(const Descriptor& from, cudnnBackendAttributeName_t name,
                                        cudnnBackendDescriptorType_t type, size_t count) {
    std::vector<Descriptor> made;
    std::vector<cudnnBackendDescriptor_t> raw;
    for (size_t n = 0; n < count; ++n) {
      made.emplace_back(type);
      raw.push_back(made.back().raw());
    }
    if (count > 0) raw = from.get(name, raw);
    made.erase(made.begin() + static_cast<std::ptrdiff_t>(raw.size()), made.end());
    return made;
  }

 private:
  Descriptor config_;

  Descriptor engine() const {
    return std::move(
        filled(config_, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1).at(0));
  }
};

/* Engines for a graph, the most promising one first. */
inline std::vector<Engine> propose(const OperationGraph& graph, const Device& device) {
  std::vector<Engine> found;
  std::string reasons;
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    try {
      Descriptor asked(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
      asked.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.descriptor());
      asked.set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
      if (device.properties != nullptr)
        asked.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device.properties);
      asked.finish("asking for engines");
      const auto count = asked.count<cudnnBackendDescriptor_t>(CUDNN_ATTR_ENGINEHEUR_RESULTS);
      for (Descriptor& config : Engine::filled(asked, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                               CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count))
        found.emplace_back(std::move(config));
    } catch (const Failure& failure) {
      reasons += std::string(" ") + failure.what();
    }
  }
  if (found.empty()) {
    char details[512] = {};
    cudnnGetLastErrorString(details, sizeof(details));
    throw Failure("no engine for the graph" + reasons + " " + details);
  }
  return found;
}

/* A plan that can be run, with what it is given then. */
class Plan {
 public:
  Plan(const Engine& engine, std::vector<Argument> arguments)
      : descriptor_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR), arguments_(std::move(arguments)),
        name_(engine.name()) {
    descriptor_.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine.config())
        .finish("building a plan");
  }

  /* What `text` wrote; throws where this installation cannot read it. */
  Plan(const std::string& text, std::vector<Argument> arguments, const Device& device)
      : descriptor_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR), arguments_(std::move(arguments)),
        name_("read") {
    if (device.properties != nullptr)
      descriptor_.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device.properties);
    else
      descriptor_.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, device.handle);
    descriptor_
        .set(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, text.data(), text.size())
        .finish("reading a plan");
  }

  /* cuDNN's own text of the plan. */
  std::string text() const {
    std::vector<char> text(
        descriptor_.count<char>(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION));
    text = descriptor_.get(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, text);
    return {text.begin(), text.end()};
  }

  const Descriptor& descriptor() const { return descriptor_; }
  const std::vector<Argument>& arguments() const { return arguments_; }
  const std::string& name() const { return name_; }
  int64_t workspace_bytes() const {
    return descriptor_.get<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  }

 private:
  Descriptor descriptor_;
  std::vector<Argument> arguments_;
  std::string name_;
};

}  // namespace collage_cudnn

#endif  // COLLAGE_CUDNN_PLAN_H_
