// Layouts of tensors by their names: row-major, channels last, blocks of channels.
#pragma once

#include <algorithm>
#include <vector>

#include "storage.h"

namespace collage_onednn {

using dims = dnnl::memory::dims;
using tag = dnnl::memory::format_tag;

inline memory::data_type data_type(int64_t index) {
  using t = memory::data_type;  // same order as Dtype in graph.py
  static const t table[] = {t::f32, t::u8, t::s8, t::s32};
  return table[index];
}

inline desc row_major(const dims& d, memory::data_type type = memory::data_type::f32) {
  dims strides(d.size());
  int64_t stride = 1;
  for (size_t i = d.size(); i-- > 0; stride *= d[i]) strides[i] = stride;
  return desc(d, type, strides);
}
inline desc with_tag(const dims& d, tag t, memory::data_type type = memory::data_type::f32) {
  return desc(d, type, t);
}
inline desc any_layout(const dims& d, memory::data_type type = memory::data_type::f32) {
  return desc(d, type, tag::any);
}

// Layouts of images by their number of dimensions, 3 to 5: for 1, 2 and 3 spatial axes.
inline tag channels_last(size_t rank) {
  return rank == 3 ? tag::nwc : rank == 4 ? tag::nhwc : tag::ndhwc;
}
inline tag blocks_of_16(size_t rank) {
  return rank == 3 ? tag::nCw16c : rank == 4 ? tag::nChw16c : tag::nCdhw16c;
}
inline tag blocks_of_8(size_t rank) {
  return rank == 3 ? tag::nCw8c : rank == 4 ? tag::nChw8c : tag::nCdhw8c;
}

// Layouts that values between operators may have: those kernels choose for images, else row-major.
inline std::vector<desc> layouts_of(const dims& d,
                                    memory::data_type type = memory::data_type::f32) {
  const size_t rank = d.size();
  if (rank < 3 || rank > 5) return {row_major(d, type)};
  return {with_tag(d, blocks_of_16(rank), type), with_tag(d, blocks_of_8(rank), type),
          with_tag(d, channels_last(rank), type), row_major(d, type)};
}

// The layout of `md`, a tensor of extents `from`, for a tensor of other extents and the same type;
// row-major where it has no name here.
inline desc same_layout(const desc& md, const dims& from, const dims& to) {
  const memory::data_type type = md.get_data_type();
  auto known = layouts_of(from, type), wanted = layouts_of(to, type);
  for (size_t i = 0; i < known.size() && known.size() == wanted.size(); ++i)
    if (known[i] == md) return wanted[i];
  return row_major(to, type);
}

// The same layout for numbers of another type; gaps are closed.
inline desc retyped(const desc& md, memory::data_type type) {
  const dims extents = md.get_dims(), places = md.get_strides();
  if (md.get_data_type() == type) return md;
  const size_t rank = extents.size();
  if (md.get_inner_nblks() > 0) {
    for (tag t : {blocks_of_16(rank), blocks_of_8(rank)})
      if (desc(extents, md.get_data_type(), t) == md) return desc(extents, type, t);
    return row_major(extents, type);
  }
  std::vector<size_t> order(rank);
  for (size_t i = 0; i < rank; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t i, size_t j) { return places[i] > places[j]; });
  dims strides(rank);
  int64_t stride = 1;
  for (size_t i = rank; i-- > 0; stride *= extents[order[i]]) strides[order[i]] = stride;
  return desc(extents, type, strides);
}

}  // namespace collage_onednn
