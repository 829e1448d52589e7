// How a region is built and run, but for what its operators are: values in layouts, steps, outputs.
#pragma once

#include "region.h"

namespace collage_onednn {

inline bool is_reference(const char* implementation) {
  const std::string name = implementation;
  return name.rfind("ref", 0) == 0 || name.find("+ref") != std::string::npos;
}

// The `count` integers of an operator that begin at the `part`-th such group behind `skip` others.
inline dims ints_of(const Op& op, size_t count, size_t part, size_t skip = 0) {
  auto begin = op.ints.begin() + static_cast<std::ptrdiff_t>(skip + part * count);
  return dims(begin, begin + static_cast<std::ptrdiff_t>(count));
}

// The tensor without gaps, in the layout it has.
inline int Region::value_of(int tensor) {
  if (within_[tensor] >= 0) copy(std::exchange(within_[tensor], -1), primary_[tensor]);
  return primary_[tensor];
}

// The tensor in a given layout: as it is, a copy made before, or a new copy.
inline int Region::in_layout(int tensor, const desc& md) {
  int value = within_[tensor] >= 0 ? within_[tensor] : primary_[tensor];
  if (md_of(tensor) == md) return value_of(tensor);
  for (int other : copies_[tensor])
    if (storage_.md(other) == md) return other;
  int result;
  if (is_constant(tensor)) {
    result = storage_.owned(md);
    memory from(storage_.md(value), engine_,
                storage_.group(value).data + storage_.offset(value));
    memory to(md, engine_, storage_.group(result).data);
    dnnl::reorder(from, to).execute(stream_, from, to);
    stream_.wait();
  } else {
    result = storage_.fresh(md);
    copy(value, result);
  }
  copies_[tensor].push_back(result);
  storage_.group(result).members.push_back(tensor);
  return result;
}

// Row-major. A blocked vector (every other extent 1, nothing padded) already is: only relabel it.
inline int Region::plain(int tensor) {
  const desc md = md_of(tensor), wanted = tensor_md(tensor);
  if (md == wanted) return value_of(tensor);
  int extended = 0;
  for (auto d : md.get_dims()) extended += d != 1;
  if (extended <= 1 && md.get_size() == wanted.get_size() && md.get_submemory_offset() == 0)
    return storage_.view(value_of(tensor), wanted);
  return in_layout(tensor, wanted);
}

// Without gaps, in whatever order: what elementwise kernels want.
inline int Region::dense(int tensor) {
  const desc md = md_of(tensor);
  size_t elements = 1;
  for (auto d : md.get_padded_dims()) elements *= static_cast<size_t>(d);
  const size_t bytes = elements * memory::data_type_size(md.get_data_type());
  if (md.get_submemory_offset() == 0 && md.get_size() == bytes)
    return value_of(tensor);
  return plain(tensor);
}

// An operand that is broadcast to a tensor of layout `md`: kernels want it in the same layout.
inline int Region::broadcast(int tensor, const desc& md) {
  const dims& d = tensor_dims(tensor);
  dims whole = md.get_dims();
  return whole.size() == d.size() ? in_layout(tensor, same_layout(md, whole, d)) : plain(tensor);
}

inline void Region::copy(int from, int to) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::reorder::primitive_desc pd(engine_, storage_.md(from), engine_, storage_.md(to), attr);
  emit(pd, dnnl::reorder(pd), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

// Whether a value may be written over by the operator at `op_index`, which also reads `read`.
inline bool Region::overwritable(int value, size_t op_index, const std::vector<int>& read) {
  const Group& g = storage_.group(value);
  if (g.kind != Group::arena) return false;
  for (int member : g.members)
    if (last_use_[member] > op_index) return false;
  for (int other : read)
    if (storage_.group_id(other) == storage_.group_id(value)) return false;
  return true;
}

template <class PD>
void Region::emit(const PD& pd, const dnnl::primitive& primitive, Arguments arguments) {
  desc scratchpad = pd.scratchpad_desc();
  if (scratchpad.get_size() > 0)
    arguments.emplace_back(DNNL_ARG_SCRATCHPAD, storage_.fresh(scratchpad));
  for (auto& [_, value] : arguments) storage_.touch(value, static_cast<int>(steps_.size()));
  steps_.push_back({primitive, nullptr, std::move(arguments), {}, threads_});
}

// The arguments' numbers say nothing.
inline void Region::emit_host(Arguments arguments, Host host) {
  for (auto& [_, value] : arguments) storage_.touch(value, static_cast<int>(steps_.size()));
  steps_.push_back({{}, std::move(host), std::move(arguments), {}, threads_});
}

// Of all tensors that an operator reads and writes.
inline size_t Region::bytes_of(const Op& op) const {
  size_t bytes = 0;
  auto count = [&](int tensor) { bytes += tensor_md(tensor).get_size(); };
  for (int t : op.inputs) count(t);
  for (int t : op.outputs) count(t);
  for (auto& p : op.post_ops)
    if (p.is_binary) count(p.tensor);
  return bytes;
}

inline void Region::use_threads(size_t bytes) {
  threads_ = bytes < kAloneBytes ? 1 : collage_num_threads();
  omp_set_num_threads(threads_);
}

inline Region::Region(const Plan& plan, const void* const* constants) : plan_(plan) {
  size_t count = plan_.tensors.size();
  primary_.assign(count, -1);
  copies_.resize(count);
  within_.assign(count, -1);
  room_.assign(count, -1);
  last_use_.assign(count, 0);
  input_dims_.resize(num_inputs());
  for (size_t i = 0; i < plan_.ops.size(); ++i) {
    for (int t : plan_.ops[i].inputs) last_use_[t] = i;
    for (auto& p : plan_.ops[i].post_ops)
      if (p.is_binary) last_use_[p.tensor] = i;
  }
  for (int t : plan_.outputs) last_use_[t] = SIZE_MAX;
  for (size_t i = 0; i < count; ++i) {
    const PlanTensor& t = plan_.tensors[i];
    int id = static_cast<int>(i);
    if (t.source == Source::input) {
      input_dims_[static_cast<size_t>(t.index)] = t.dims;
      bind(id, storage_.external(Group::input, t.index, row_major(t.dims)));
    } else if (t.source == Source::constant) {
      bind(id, storage_.fixed(constants[t.index], tensor_md(id)));
    }
  }
  for (size_t i = 0; i < plan_.ops.size(); ++i) {
    use_threads(bytes_of(plan_.ops[i]));
    build(plan_.ops[i], i);
  }
  bind_outputs();
  finish();
  omp_set_num_threads(collage_num_threads());
}

// Results go straight into the caller's tensors where nothing prevents it.
inline void Region::bind_outputs() {
  for (size_t k = 0; k < plan_.outputs.size(); ++k) {
    int tensor = plan_.outputs[k];
    use_threads(2 * row_major(tensor_dims(tensor)).get_size());
    int value = plain(tensor);
    Group& g = storage_.group(value);
    int argument = static_cast<int>(num_inputs() + k);
    if (g.kind == Group::arena && storage_.whole(value)) {
      g.kind = Group::output;
      g.index = argument;
    } else {
      copy(value, storage_.external(Group::output, argument, row_major(tensor_dims(tensor))));
    }
  }
}

inline void Region::finish() {
  storage_.plan_arena();
  memories_.resize(storage_.count());
  for (auto& step : steps_) {
    for (auto& [argument, value] : step.arguments) {
      memory& m = memories_[static_cast<size_t>(value)];
      if (!m.get(true)) {
        const Group& g = storage_.group(value);
        size_t offset = storage_.offset(value);
        bool outside = g.kind == Group::input || g.kind == Group::output;
        m = memory(storage_.md(value), engine_, outside ? nullptr : g.data + offset);
        if (outside) externals_.push_back({m.get(), static_cast<size_t>(g.index), offset});
      }
      step.exec.push_back({argument, m.get()});
    }
  }
}

inline void Region::run(const std::vector<void*>& arguments) {
  for (auto& e : externals_) {
    char* data = static_cast<char*>(arguments[e.argument]) + e.offset;
    dnnl::error::wrap_c_api(dnnl_memory_set_data_handle(e.memory, data), "cannot set a buffer");
  }
  int threads = collage_num_threads();
  std::vector<void*> data;
  for (auto& step : steps_) {
    if (step.threads != threads) omp_set_num_threads(threads = step.threads);
    if (step.host) {
      data.clear();
      for (auto& e : step.exec) {
        data.push_back(nullptr);
        dnnl::error::wrap_c_api(dnnl_memory_get_data_handle(e.memory, &data.back()),
                                "cannot read a buffer");
      }
      step.host(data);
      continue;
    }
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(step.primitive.get(), stream_.get(),
                               static_cast<int>(step.exec.size()), step.exec.data()),
        "a primitive failed");
  }
  stream_.wait();
  omp_set_num_threads(collage_num_threads());
}

}  // namespace collage_onednn
