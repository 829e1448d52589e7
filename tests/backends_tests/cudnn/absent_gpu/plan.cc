/* Plans a table of graphs for a GPU that is described, not here; writes what came of each.
 *
 *     plan PROPERTIES FOLDER
 *
 * FOLDER/n.txt has the engines and the plan's text of each step, or what failed.
 */
#include <fstream>
#include <iterator>

// The whole runtime, with what it keeps to itself.
#include "cudnn_program.cc"

extern "C" {
extern const collage_cudnn_graph* const collage_cudnn_graphs[];
extern const int collage_cudnn_num_graphs;
}

using namespace collage_cudnn;

static Descriptor described(const std::string& text) {
  Descriptor made(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  made.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, text.data(), text.size()).finish("a device");
  return made;
}

/* A step's text, once it has been read again and pointers were bound to it. */
static std::string plan(const Device& device, const collage_cudnn_graph& graph) {
  Step step(graph, 0, graph.num_operations, StepKind::kGraph);
  step.choose(device, false);
  const std::vector<unsigned char> saved = step.save();
  Step again(graph, 0, graph.num_operations, StepKind::kGraph);
  again.load(device, saved);
  if (again.workspace_bytes() != step.workspace_bytes()) throw Failure("another workspace");
  std::vector<uint64_t> memory(static_cast<size_t>(graph.num_tensors));
  std::vector<void*> tensors;
  for (uint64_t& word : memory) tensors.push_back(&word);
  VariantPack pack;
  std::vector<Pointer> scratch;
  again.bind(pack, scratch, tensors.data(), memory.data());
  for (size_t bytes : {size_t{4}, size_t{20}, saved.size() / 2}) {
    try {
      again.load(device, {saved.begin(), saved.begin() + static_cast<std::ptrdiff_t>(bytes)});
      throw std::logic_error("a plan that is cut short was read");
    } catch (const Failure&) {
    }
  }
  const size_t head = sizeof(uint64_t) + scratch.size() * sizeof(Argument);
  return step.describe() + "\n" + std::string(saved.begin() + static_cast<std::ptrdiff_t>(head),
                                              saved.end());
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::ifstream file(argv[1]);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const Descriptor properties = described(text);
  for (int n = 0; n < collage_cudnn_num_graphs; ++n) {
    std::ofstream out(std::string(argv[2]) + "/" + std::to_string(n) + ".txt");
    const std::vector<unsigned char> earlier(4096, 'C');
    if (load({}, *collage_cudnn_graphs[n], earlier.data(), earlier.size()) != nullptr) return 3;
    try {
      out << plan({nullptr, properties.raw()}, *collage_cudnn_graphs[n]);
    } catch (const std::exception& error) {
      out << "failed: " << error.what();
    }
  }
  std::_Exit(0);
}
