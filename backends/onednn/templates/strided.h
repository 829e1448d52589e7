// What oneDNN has only its reference kernels for, which take a microsecond for ten elements:
// operands that are broadcast along any axes, and reductions over others than the last ones.
#pragma once

#include "building.h"

namespace collage_onednn {

// The axes of `md` as they lie in memory, joined where `strides` (by axis) lets them.
inline std::vector<Run> runs_of(const desc& md, const dims& strides) {
  const dims extents = md.get_dims(), places = md.get_strides();
  std::vector<size_t> order;
  for (size_t i = 0; i < extents.size(); ++i)
    if (extents[i] > 1) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](size_t i, size_t j) { return places[i] > places[j]; });
  std::vector<Run> runs;
  for (size_t i : order) {
    if (!runs.empty() && runs.back().stride == strides[i] * extents[i]) {
      runs.back() = {runs.back().extent * extents[i], strides[i]};
    } else {
      runs.push_back({extents[i], strides[i]});
    }
  }
  if (runs.empty()) runs.push_back({1, 0});
  return runs;
}

// `first`, a value without gaps or blocks, and a tensor that is broadcast to it along any axes;
// `dst` has the layout of `first` or is it.
inline void Region::strided_binary(int64_t algorithm, int first, int tensor, int dst) {
  const int second = plain(tensor);
  const dims extents = storage_.md(first).get_dims();
  const dims& given = tensor_dims(tensor);
  dims strides(extents.size(), 0);
  int64_t stride = 1;
  for (size_t i = extents.size(); i-- > 0; stride *= given[i])
    if (given[i] > 1) strides[i] = stride;
  std::vector<Run> outer = runs_of(storage_.md(first), strides);
  const Run inner = outer.back();
  outer.pop_back();
  int64_t rows = 1;
  for (const Run& run : outer) rows *= run.extent;
  emit_host({{0, first}, {0, second}, {0, dst}},
            [algorithm, outer, inner, rows](const std::vector<void*>& data) {
    const auto* a = static_cast<const float*>(data[0]);
    const auto* b = static_cast<const float*>(data[1]);
    auto* result = static_cast<float*>(data[2]);
    binary_rows(algorithm, a, b, rows, outer, inner, result);
  });
}

// Over the second of three axes that lie in this order. Few and narrow results are shared out by
// parts of what each of them is made of.
inline void Region::reduce(int64_t algorithm, int src, int dst, const Extents& extents) {
  const int64_t outer = extents.outer, count = extents.count, width = extents.width;
  const auto how = static_cast<Reduced>(algorithm);
  const int64_t blocks = (width + kMostColumns - 1) / kMostColumns;
  const bool divided = outer * blocks < threads_ && count >= 64 * threads_;
  const int64_t parts = divided ? threads_ : 1;
  const int partial = divided ? storage_.fresh(row_major({outer * parts * width})) : dst;
  emit_host({{0, src}, {0, dst}, {0, partial}}, [=](const std::vector<void*>& data) {
    reduce_middle(how, static_cast<const float*>(data[0]), extents, parts,
                  parts > 1 ? static_cast<float*>(data[2]) : nullptr,
                  static_cast<float*>(data[1]));
  });
}

// Whether a reduction is over one run of axes of its input as it lies in memory, and is done here.
inline bool Region::columns_reduced(const Op& op) {
  const dims& out = tensor_dims(op.outputs[0]);
  const int src = dense(op.inputs[0]);
  const desc md = storage_.md(src);
  if (md.get_inner_nblks() > 0) return false;
  const dims extents = md.get_dims(), places = md.get_strides();
  std::vector<size_t> order(extents.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t i, size_t j) { return places[i] > places[j]; });
  // How many elements come before the axes that are reduced over, in them, and after them.
  int64_t counts[3] = {1, 1, 1};
  size_t at = 0;
  for (size_t i : order) {
    if (extents[i] == 1) continue;
    const bool reduced = out[i] == 1;
    if (at == 0 && reduced) at = 1;
    else if (at == 1 && !reduced) at = 2;
    else if (at == 2 && reduced) return false;
    counts[at] *= extents[i];
  }
  dims strides(out.size());
  int64_t stride = 1;
  for (size_t k = order.size(); k-- > 0; stride *= out[order[k]]) strides[order[k]] = stride;
  const int dst = storage_.fresh(desc(out, memory::data_type::f32, strides));
  reduce(op.ints[0], src, dst, {counts[0], counts[1], counts[2]});
  bind(op.outputs[0], dst);
  return true;
}

}  // namespace collage_onednn
