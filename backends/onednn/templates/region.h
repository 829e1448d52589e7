// A region: its plan turned into oneDNN primitives, packed weights and one arena; built once, run often.
#pragma once

#include <omp.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "layouts.h"
#include "loops.h"
#include "plan.h"
#include "storage.h"
#include "vectors/vectors.h"
#include "winograd/choice.h"

extern "C" int collage_num_threads(void);  // num_threads.c

namespace collage_onednn {

// An operator on less than this is done before a second thread has come: one thread computes it.
// Beside other programs a meeting of all threads takes a thousand times as long as the operator.
constexpr size_t kAloneBytes = 32 << 10;

using Arguments = std::vector<std::pair<int, int>>;  // (oneDNN argument, value)

class Region {
 public:
  Region(const Plan& plan, const void* const* constants);

  size_t num_inputs() const { return static_cast<size_t>(plan_.num_inputs); }
  size_t num_outputs() const { return plan_.outputs.size(); }
  const dims& argument_dims(size_t argument) const {
    return argument < num_inputs() ? input_dims_[argument]
                                   : tensor_dims(plan_.outputs[argument - num_inputs()]);
  }
  // One dense float32 pointer per argument, inputs first.
  void run(const std::vector<void*>& arguments);
  dnnl::engine& engine() { return engine_; }
  std::mutex& mutex() { return mutex_; }

 private:
  // What no primitive does: given the memory of each argument, in their order.
  using Host = std::function<void(const std::vector<void*>&)>;
  struct Step {
    dnnl::primitive primitive;
    Host host;  // in place of a primitive
    Arguments arguments;
    std::vector<dnnl_exec_arg_t> exec;
    int threads;
  };
  struct External {
    dnnl_memory_t memory;
    size_t argument, offset;
  };

  // building.h
  const dims& tensor_dims(int tensor) const { return plan_.tensors[tensor].dims; }
  memory::data_type tensor_type(int tensor) const { return data_type(plan_.tensors[tensor].type); }
  desc tensor_md(int tensor) const { return row_major(tensor_dims(tensor), tensor_type(tensor)); }
  bool is_constant(int tensor) const { return plan_.tensors[tensor].source == Source::constant; }
  int value_of(int tensor);
  desc md_of(int tensor) const { return storage_.md(primary_[tensor]); }
  void bind(int tensor, int value) {
    primary_[tensor] = value;
    storage_.group(value).members.push_back(tensor);
  }
  int in_layout(int tensor, const desc& md);
  int plain(int tensor);
  int dense(int tensor);
  int broadcast(int tensor, const desc& md);
  void copy(int from, int to);
  bool overwritable(int value, size_t op_index, const std::vector<int>& read);
  template <class PD>
  void emit(const PD& pd, const dnnl::primitive& primitive, Arguments arguments);
  void emit_host(Arguments arguments, Host host);
  size_t bytes_of(const Op& op) const;
  void use_threads(size_t bytes);
  void finish();
  void bind_outputs();

  // operators/post_ops.h
  dnnl::primitive_attr attributes(const Op& op, size_t fused, int sum_at, bool full_any,
                                  Arguments* arguments);
  bool adds_whole(const Op& op, const PostOp& p) const;
  int find_sum(const Op& op, size_t fused, memory::data_type type) const;
  bool read_twice(const Op& op, int sum_at);
  void prelu(int src, int slopes, int dst);
  VectorFunction in_vectors(int64_t algorithm, const desc& md);
  size_t worth_fusing(const Op& op);
  dnnl::eltwise_forward::primitive_desc eltwise_primitive(int64_t algorithm, float alpha,
                                                          float beta, const desc& md);
  void apply(int64_t algorithm, float alpha, float beta, int src, int dst);
  int apply_rest(const Op& op, size_t fused, int value);
  void add_bias(int tensor, int value);
  // operators/rounded.h
  struct Types {  // of a product's operands and result
    memory::data_type operands = memory::data_type::f32, result = memory::data_type::f32;
    bool rounded() const { return operands == memory::data_type::bf16; }
    memory::data_type of(memory::data_type exact) const { return rounded() ? operands : exact; }
  };
  bool is_rounded(int tensor) const;
  bool multiplies_rounded() const;
  bool takes_rounded(const Op& op);
  bool rounds_pictures(const Op& op);
  bool rounds_matrices(const Op& op) const;
  bool hands_on(const Op& op) const;
  bool only_multiplied(int tensor);
  bool is_only_multiplied(int tensor);
  bool rounds_result(const Op& op);
  memory::data_type result_type(const Op& op);
  Types rounded_types(const Op& op, size_t fused);
  // operators/winograd.h
  winograd::Following following(const Op& op, int* sum_at) const;
  bool in_tiles(const Op& op, winograd::Shape* shape) const;
  bool between_planes(const Op& op) const;
  bool conv_in_tiles(const Op& op, size_t at, const desc& from, const desc& to);
  void convolve_in_tiles(const winograd::Kernels& kernels, const Op& op, size_t at,
                         const winograd::Shape& shape, const desc& from,
                         const winograd::Strides& from_strides, const desc& to,
                         const winograd::Strides& to_strides);
  // operators/fused.h
  template <class Primitive>
  void conv(const Op& op, size_t at, dnnl::algorithm algorithm);
  bool multiplies_bytes(int weights);
  void matmul(const Op& op, size_t at);
  // scaled_weights.h
  const Op* scaling_of(int weights) const;
  int scaled_weights(const Op& scaling, const desc& packed);
  // strided.h
  void strided_binary(int64_t algorithm, int first, int tensor, int dst);
  bool columns_reduced(const Op& op);
  void reduce(int64_t algorithm, int src, int dst, const Extents& extents);
  // operators/chains.h
  size_t innermost(const desc& md) const;
  Link link_of(const PostOp& op, const desc& md) const;
  std::vector<Link> links_of(const std::vector<PostOp>& steps, const desc& md) const;
  int chained(int from, const desc& md, const std::vector<PostOp>& steps,
              const std::vector<Link>& links, bool rounds);
  bool chains_rounded(const Op& op);
  bool in_chain(const Op& op);
  Op in_float32(const Op& op);
  // operators/depthwise.h
  Depthwise depthwise_of(const Op& op) const;
  bool is_by_channel(const Op& op);
  int by_blocks(int tensor, int64_t taps);
  bool fuse_behind(const Op& op, Depthwise* s) const;
  bool conv_by_channel(const Op& op);
  // operators/groups.h
  int64_t joined_groups(const Op& op);
  int weights_of_joined(int weights, int64_t together);
  bool conv_of_joined(const Op& op, size_t at);
  // operators/simple.h
  bool whole_averaged(const Op& op);
  void pool(const Op& op);
  void resample(const Op& op);
  void layer_norm(const Op& op);
  void lrn(const Op& op);
  void binary(const Op& op);
  void eltwise(const Op& op);
  void reduction(const Op& op);
  // operators/softmax.h
  bool rows_shared(const Op& op, int src);
  void softmax(const Op& op);
  void log_softmax(const Op& op, int src);
  // operators/recurrent.h
  void recurrent(const Op& op);
  template <class Primitive>
  void layer(const Op& op, const typename Primitive::primitive_desc& pd);
  // operators/quantized.h
  void quantize(const Op& op);
  int floats_of_bytes(const Op& op);
  int floats_of_weights(const Op& op);
  // operators/bytes.h
  int fresh_tensor(const dims& d);
  int number(float value, memory::data_type type);
  void store_bytes(int from, int to);
  void to_floats(int from, int to, float step, float point);
  bool bytes_conv_in_bytes(const Op& op);
  void bytes_conv(const Op& op, size_t at);
  void bytes_binary(const Op& op);
  // operators/lines.h
  int one_pixel_high(int tensor, size_t at);
  bool has_kernel(const dims& x, const dims& w, const dims& out, const std::vector<int64_t>& ints);
  void conv_of_line(const Op& op, size_t at);
  // operators/multiplied.h
  bool is_multiplied(const Op& op, const dims& w);
  void conv_of_multiplied(const Op& op, size_t at);
  // operators/select.h
  void select(const Op& op);
  // operators/interleave.h
  void interleave(const Op& op);
  // operators/movement.h
  void reshape(const Op& op);
  void permute(const Op& op);
  void slice(const Op& op);
  void concat(const Op& op);
  dims grown_dims(const Op& op) const;
  bool grow(const Op& op);
  void shuffle(const Op& op);
  void pad(const Op& op);
  void build(const Op& op, size_t at);

  Plan plan_;
  std::mutex mutex_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  Storage storage_;
  std::vector<dims> input_dims_;
  std::vector<int> primary_;              // value of each logical tensor
  std::vector<std::vector<int>> copies_;  // the same in other layouts
  std::vector<int> within_;  // where a tensor lies in one that grows out of it, until it is copied out
  std::vector<int> room_;    // what a tensor begins, with room for all that will be joined to it
  std::vector<size_t> last_use_;          // last operator that reads a logical tensor
  std::vector<std::optional<bool>> multiplied_;  // what only_multiplied said of a tensor
  std::vector<Step> steps_;
  std::vector<dnnl::memory> memories_;
  std::vector<External> externals_;
  int threads_ = 0;  // of what is built now: primitives are made for as many as run them
};

}  // namespace collage_onednn
