// Operators that only move data; most of them become views.
#pragma once

#include <algorithm>

#include "depthwise.h"
#include "groups.h"
#include "interleave.h"
#include "multiplied.h"

namespace collage_onednn {

// The slice of `md`, as a dense layout and a distance in bytes where the slice has no gaps.
struct Slice {
  desc md;
  size_t offset;
  bool contiguous;
};

inline bool slice_of(const desc& md, const dims& extent, const dims& begin, const desc& dense,
                     Slice* result) {
  desc sub = md.submemory_desc(extent, begin, true);
  if (!sub.get(true)) return false;
  dims sub_strides = sub.get_strides(), dense_strides = dense.get_strides();
  bool same = sub.get_padded_dims() == dense.get_padded_dims() &&
              sub.get_inner_blks() == dense.get_inner_blks() &&
              sub.get_inner_idxs() == dense.get_inner_idxs();
  dims blocks(extent.size(), 1);
  auto inner = dense.get_inner_blks();
  auto index = dense.get_inner_idxs();
  for (size_t i = 0; i < inner.size(); ++i) blocks[static_cast<size_t>(index[i])] *= inner[i];
  auto padded = dense.get_padded_dims();
  for (size_t i = 0; same && i < extent.size(); ++i)
    same = padded[i] == blocks[i] || sub_strides[i] == dense_strides[i];
  const size_t offset = static_cast<size_t>(sub.get_submemory_offset()) *
                        memory::data_type_size(md.get_data_type());
  if (same) *result = {dense, offset, true};
  else *result = {sub, 0, false};
  return true;
}

inline void Region::reshape(const Op& op) {
  const dims& out = tensor_dims(op.outputs[0]);
  int value = value_of(op.inputs[0]);
  desc md = storage_.md(value).reshape(out, true);
  if (!md.get(true)) {
    value = plain(op.inputs[0]);
    md = row_major(out);
  }
  bind(op.outputs[0], storage_.view(value, md));
}

// ints: for each dimension of the result, which one of the input it is
inline void Region::permute(const Op& op) {
  std::vector<int> inverse(op.ints.size());
  for (size_t i = 0; i < op.ints.size(); ++i)
    inverse[static_cast<size_t>(op.ints[i])] = static_cast<int>(i);
  int value = value_of(op.inputs[0]);
  bind(op.outputs[0], storage_.view(value, storage_.md(value).permute_axes(inverse)));
}

// ints: begins
inline void Region::slice(const Op& op) {
  const dims& extent = tensor_dims(op.outputs[0]);
  const dims begin(op.ints.begin(), op.ints.end());
  int source = dense(op.inputs[0]);
  desc like = same_layout(storage_.md(source), tensor_dims(op.inputs[0]), extent);
  Slice part;
  if (!slice_of(storage_.md(source), extent, begin, like, &part)) {
    source = plain(op.inputs[0]);
    like = row_major(extent);
    slice_of(storage_.md(source), extent, begin, like, &part);
  }
  if (part.contiguous) {
    bind(op.outputs[0], storage_.view(source, part.md, part.offset));
    return;
  }
  int strided = storage_.view(source, part.md);
  int dst = storage_.fresh(like);
  copy(strided, dst);
  bind(op.outputs[0], dst);
}

// What a result will be when all that is joined to its end has been: DenseNet's blocks.
inline dims Region::grown_dims(const Op& op) const {
  const Op* last = &op;
  for (bool found = true; found;) {
    found = false;
    for (const Op& other : plan_.ops) {
      if (other.kind != OpKind::concat || other.ints != op.ints || &other == last ||
          other.inputs[0] != last->outputs[0])
        continue;
      last = &other;
      found = true;
      break;
    }
  }
  return tensor_dims(last->outputs[0]);
}

// Whether channels were joined, channels last, where there is room for all that will be joined to
// them: each part is copied once, not once for each result that it is a part of.
inline bool Region::grow(const Op& op) {
  const int first = op.inputs[0], made = op.outputs[0];
  const dims &out = tensor_dims(made), whole = grown_dims(op);
  const size_t rank = out.size();
  const bool begins = room_[first] < 0;
  if ((begins && whole == out) || rank < 3 || rank > 5 || op.ints[0] != 1 ||
      md_of(first) !=
          with_tag(tensor_dims(first), channels_last(rank), md_of(first).get_data_type()))
    return false;
  // One result alone goes on in the room: others that begin alike have rooms of their own. What
  // products alone read at first they alone read to the end.
  const int room = begins ? storage_.fresh(with_tag(whole, channels_last(rank), result_type(op)))
                          : std::exchange(room_[first], -1);
  const desc all = storage_.md(room);
  auto part = [&](const dims& extent, int64_t from) {
    dims begin(rank, 0);
    begin[1] = from;
    return storage_.view(room, all.submemory_desc(extent, begin));
  };
  int64_t from = 0;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const dims& extent = tensor_dims(op.inputs[i]);
    if (i > 0 || begins) copy(value_of(op.inputs[i]), part(extent, from));
    from += extent[1];
  }
  if (whole == out) {
    bind(made, room);
    return true;
  }
  room_[made] = room;
  within_[made] = part(out, 0);
  storage_.group(room).members.push_back(made);
  bind(made, storage_.fresh(with_tag(out, channels_last(rank), all.get_data_type())));
  return true;
}

// ints: axis. The result is one piece of memory; inputs that can live in it do, others are copied.
inline void Region::concat(const Op& op) {
  if (grow(op)) return;
  const dims& out = tensor_dims(op.outputs[0]);
  const size_t axis = static_cast<size_t>(op.ints[0]);
  const memory::data_type type = result_type(op);
  auto layouts = layouts_of(out, type);
  size_t best = layouts.size(), best_score = 0;
  for (size_t l = 0; l < layouts.size(); ++l) {
    dims begin(out.size(), 0);
    size_t score = 0;
    bool possible = true;
    for (int t : op.inputs) {
      desc like = layouts_of(tensor_dims(t), type)[l];
      Slice part;
      possible = possible && slice_of(layouts[l], tensor_dims(t), begin, like, &part);
      if (md_of(t) == like) score += 1;
      begin[axis] += tensor_dims(t)[axis];
    }
    if (possible && (best == layouts.size() || score > best_score)) {
      best = l;
      best_score = score;
    }
  }
  int whole = storage_.fresh(layouts[best]);
  dims begin(out.size(), 0);
  for (int t : op.inputs) {
    desc like = layouts_of(tensor_dims(t), type)[best];
    Slice part;
    slice_of(layouts[best], tensor_dims(t), begin, like, &part);
    int value = value_of(t);
    if (part.contiguous && storage_.md(value) == like &&
        storage_.group(value).kind == Group::arena && storage_.whole(value) &&
        storage_.group_id(value) != storage_.group_id(whole)) {
      storage_.adopt(value, whole, part.offset);
    } else {
      copy(value, storage_.view(whole, part.md, part.offset));
    }
    begin[axis] += tensor_dims(t)[axis];
  }
  bind(op.outputs[0], whole);
}

// With a number. ints: before and after, for each dimension; floats: the number
inline void Region::pad(const Op& op) {
  const dims& given = tensor_dims(op.inputs[0]);
  const dims& out = tensor_dims(op.outputs[0]);
  const float number = op.floats[0];
  dims begin(out.size());
  for (size_t i = 0; i < out.size(); ++i) begin[i] = op.ints[2 * i];
  int source = dense(op.inputs[0]);
  desc layout = same_layout(storage_.md(source), given, out);
  // What fills up a block of channels has to be zero.
  const bool filled = number != 0.f && layout.get_padded_dims() != layout.get_dims();
  Slice part;
  if (filled || !slice_of(layout, given, begin, storage_.md(source), &part)) {
    source = plain(op.inputs[0]);
    layout = row_major(out);
    slice_of(layout, given, begin, row_major(given), &part);
  }
  // The border is written once, for nobody writes over it; each call writes what is inside.
  const int dst = storage_.owned(layout);
  char* const data = storage_.group(dst).data;
  if (number == 0.f) std::fill_n(data, layout.get_size(), char{0});  // of any type
  else std::fill_n(reinterpret_cast<float*>(data), layout.get_size() / sizeof(float), number);
  copy(source, storage_.view(dst, part.md, part.offset));
  bind(op.outputs[0], dst);
}

// Channels of a picture regrouped; ints: groups. Where oneDNN has only its reference kernel, a copy
// between two views of five dimensions does it.
inline void Region::shuffle(const Op& op) {
  const int64_t groups = op.ints[0];
  const dims& d = tensor_dims(op.inputs[0]);
  int src = dense(op.inputs[0]);
  int dst = storage_.fresh(storage_.md(src));
  dnnl::shuffle_forward::primitive_desc pd(engine_, dnnl::prop_kind::forward_inference,
                                           storage_.md(src), storage_.md(dst), 1,
                                           static_cast<int>(d[1] / groups), user_scratchpad());
  desc from = storage_.md(src).reshape({d[0], groups, d[1] / groups, d[2], d[3]}, true);
  desc to = storage_.md(dst).reshape({d[0], d[1] / groups, groups, d[2], d[3]}, true);
  if (is_reference(pd.impl_info_str()) && from.get(true) && to.get(true)) {
    copy(storage_.view(src, from.permute_axes({0, 2, 1, 3, 4})), storage_.view(dst, to));
  } else {
    emit(pd, dnnl::shuffle_forward(pd), {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
  }
  bind(op.outputs[0], dst);
}

inline void Region::build(const Op& op, size_t at) {
  switch (op.kind) {
    case OpKind::conv:
      if (conv_of_joined(op, at) || conv_by_channel(op)) return;
      return conv<dnnl::convolution_forward>(op, at, dnnl::algorithm::convolution_direct);
    case OpKind::deconv:
      return conv<dnnl::deconvolution_forward>(op, at, dnnl::algorithm::deconvolution_direct);
    case OpKind::matmul: return matmul(op, at);
    case OpKind::pool: return pool(op);
    case OpKind::resample: return resample(op);
    case OpKind::softmax: return softmax(op);
    case OpKind::layer_norm: return layer_norm(op);
    case OpKind::lrn: return lrn(op);
    case OpKind::binary:
      return tensor_type(op.outputs[0]) == memory::data_type::u8 ? bytes_binary(op) : binary(op);
    case OpKind::eltwise: return eltwise(op);
    case OpKind::reduction: return reduction(op);
    case OpKind::recurrent: return recurrent(op);
    case OpKind::quantize: return quantize(op);
    case OpKind::bytes_matmul: return matmul(op, at);
    case OpKind::bytes_conv: return bytes_conv(op, at);
    case OpKind::dequantize:
      return to_floats(op.inputs[0], op.outputs[0], op.floats[0], op.floats[1]);
    case OpKind::reshape: return reshape(op);
    case OpKind::permute: return permute(op);
    case OpKind::slice: return slice(op);
    case OpKind::concat: return concat(op);
    case OpKind::shuffle: return shuffle(op);
    case OpKind::pad: return pad(op);
    case OpKind::select: return select(op);
    case OpKind::interleave: return interleave(op);
    case OpKind::scale_weights: return;  // by the convolution, in its layout
  }
  throw std::runtime_error("unknown operator in the plan");
}

}  // namespace collage_onednn
