// Convolutions in tiles: from a plan to winograd/
#pragma once

#include "post_ops.h"

namespace collage_onednn {

// Where pictures have their pixels; false where they have them neither in whole blocks of channels
// nor channels last. What fills up a block would have to stay zero.
inline bool strides_of(const desc& md, winograd::Strides* found) {
  const dims strides = md.get_strides();
  if (md.get_data_type() != memory::data_type::f32 || md.get_submemory_offset() != 0) return false;
  if (md.get_padded_dims() != md.get_dims()) return false;
  const int blocks = md.get_inner_nblks();
  if (blocks > 1 || (blocks == 1 && md.get_inner_idxs()[0] != 1)) return false;
  if (blocks == 0 && strides[1] != 1) return false;
  const dims& d = md.get_dims();
  const int64_t width = blocks == 1 ? md.get_inner_blks()[0] : d[1];
  const size_t pixel = d.size() - 1;
  *found = {strides[0], strides[1], width, pixel > 3 ? strides[2] : 0,
            pixel > 2 ? strides[pixel - 1] : 0, strides[pixel]};
  return true;
}

// The same of volumes whose planes are rows of pictures.
inline bool strides_of_planes(const desc& md, winograd::Strides* found) {
  if (!strides_of(md, found) || found->row != md.get_dims()[4] * found->pixel) return false;
  found->row = found->plane;
  found->plane = 0;
  return true;
}

// The first post-operators that are done with the results in registers. One of them may be an
// addition, whose place is `sum_at`, else -1.
inline winograd::Following Region::following(const Op& op, int* sum_at) const {
  winograd::Following found;
  *sum_at = -1;
  using Step = winograd::Step;
  for (const PostOp& p : op.post_ops) {
    if (found.count == winograd::Following::kMost) break;
    Step step{Step::addition, p.alpha, p.beta, nullptr};
    if (p.is_binary) {
      if (p.algorithm != kBinaryAdd || is_constant(p.tensor) || *sum_at >= 0 ||
          tensor_type(p.tensor) != memory::data_type::f32 ||
          tensor_dims(p.tensor) != tensor_dims(op.outputs[0]))
        break;
      *sum_at = found.count;
    } else if (eltwise_algorithm(p.algorithm) == dnnl::algorithm::eltwise_relu) {
      step.kind = p.alpha == 0.f ? Step::relu : Step::leaky;
    } else if (eltwise_algorithm(p.algorithm) == dnnl::algorithm::eltwise_clip_v2) {
      step.kind = Step::clip;
    } else {
      break;
    }
    found.steps[found.count++] = step;
  }
  return found;
}

// The shape of a convolution that can be done in tiles; false of others.
inline bool Region::in_tiles(const Op& op, winograd::Shape* shape) const {
  const dims& x = tensor_dims(op.inputs[0]);
  const dims& w = tensor_dims(op.inputs[1]);
  const dims& y = tensor_dims(op.outputs[0]);
  const size_t rank = x.size(), axes = rank - 2;
  if (!plan_.winograd || !has_vectors() || plan_.precision != Precision::float32 ||
      !is_constant(op.inputs[1]))
    return false;
  const dims steps = ints_of(op, axes, 0), between = ints_of(op, axes, 1);
  const dims padding = ints_of(op, axes, 2);
  // Planes, rows and columns, from the last; those that are not there are one.
  auto axis = [&](size_t last) {
    if (last >= axes) return winograd::Planes{1, 1, 1, 1, 1, 0};
    const size_t i = axes - 1 - last;
    return winograd::Planes{x[2 + i], y[2 + i],       w[w.size() - 1 - last],
                            steps[i], between[i] + 1, padding[i]};
  };
  winograd::Planes columns = axis(0), rows = axis(1), planes = axis(2);
  if (rows.step != 1 || columns.step != 1) return false;
  if (between_planes(op)) {
    columns.read = columns.made = rows.read * columns.read;
    rows = planes;
    planes = axis(3);
  }
  const int64_t groups = w.size() > rank ? w[0] : 1;
  *shape = {x[0], x[1], rows.read, columns.read, y[1], rows.made, columns.made, groups,
            {rows.taps, columns.taps}, {rows.padding, columns.padding},
            {rows.dilation, columns.dilation}, planes};
  return true;
}

// Whether a convolution has taps between planes alone, with steps of one: rows of pictures that are
// as wide as a plane.
inline bool Region::between_planes(const Op& op) const {
  const dims& w = tensor_dims(op.inputs[1]);
  const dims& x = tensor_dims(op.inputs[0]);
  const dims& y = tensor_dims(op.outputs[0]);
  return x.size() == 5 && w[w.size() - 3] > 1 && w[w.size() - 2] == 1 && w[w.size() - 1] == 1 &&
         op.ints[0] == 1 && x[3] == y[3] && x[4] == y[4];
}

// Does the convolution, with pictures as `from` and `to` say; false where its own kernel is better.
inline bool Region::conv_in_tiles(const Op& op, size_t at, const desc& from, const desc& to) {
  winograd::Shape shape;
  winograd::Strides from_strides, to_strides;
  if (!in_tiles(op, &shape)) return false;
  auto* strides = between_planes(op) ? strides_of_planes : strides_of;
  if (!strides(from, &from_strides) || !strides(to, &to_strides)) return false;
  const int64_t lanes = has_avx512() ? 16 : 8;
  if (from_strides.width % lanes || to_strides.width % lanes) return false;
  const winograd::Tiling tiling = winograd::tiling_of(shape, threads_, lanes);
  if (tiling.rows == 0) return false;
#ifdef COLLAGE_X86
  const winograd::Kernels& kernels = has_avx512()
                                         ? winograd::avx512::kernels_of(shape, tiling.rows)
                                         : winograd::avx2::kernels_of(shape, tiling.rows);
  convolve_in_tiles(kernels, op, at, shape, from, from_strides, to, to_strides);
  return true;
#else
  return false;
#endif
}

inline void Region::convolve_in_tiles(const winograd::Kernels& kernels, const Op& op, size_t at,
                                      const winograd::Shape& shape, const desc& from,
                                      const winograd::Strides& from_strides, const desc& to,
                                      const winograd::Strides& to_strides) {
  const int64_t summands = shape.planes.taps * (shape.channels / shape.groups);
  const int packed = storage_.owned(row_major({kernels.points() * summands * shape.made}));
  const int given = plain(op.inputs[1]);
  kernels.pack(
      kernels, shape,
      reinterpret_cast<const float*>(storage_.group(given).data + storage_.offset(given)),
      reinterpret_cast<float*>(storage_.group(packed).data));

  const int src = in_layout(op.inputs[0], from);
  winograd::Work work{};
  int sum_at = -1, residual = -1, dst = -1;
  work.following = following(op, &sum_at);
  if (sum_at >= 0) {
    residual = in_layout(op.post_ops[static_cast<size_t>(sum_at)].tensor, to);
    // Each result may be written where its summand was read.
    if (overwritable(residual, at, {src}) && !read_twice(op, sum_at))
      dst = storage_.view(residual, to);
  }
  if (dst < 0) dst = storage_.fresh(to);

  auto tiles = std::make_shared<const std::vector<winograd::Tile>>(
      winograd::tiles_of(kernels, shape));
  const auto count = static_cast<int64_t>(tiles->size());
  const winograd::Sizes sizes = winograd::sizes_of(kernels, shape, count, threads_);
  auto reading = std::make_shared<const winograd::Reading>(
      winograd::reading_of(shape.planes, sizes.planes));
  work.shape = shape;
  work.from = from_strides;
  work.to = to_strides;
  work.apart = sizes.apart;
  const int pictures = storage_.fresh(row_major({sizes.points}));
  const int sums = storage_.fresh(row_major({sizes.sums * threads_}));
  const bool biased = op.inputs.size() > 2;
  const int bias = biased ? plain(op.inputs[2]) : packed, other = residual < 0 ? packed : residual;
  emit_host({{0, src}, {0, packed}, {0, bias}, {0, other}, {0, dst}, {0, pictures}, {0, sums}},
            [=, chosen = &kernels](const std::vector<void*>& data) {
    winograd::Work w = work;
    auto numbers = [&](size_t i) { return static_cast<float*>(data[i]); };
    w.tiles = tiles->data();
    w.reading = reading.get();
    w.x = numbers(0);
    w.weights = numbers(1);
    w.bias = biased ? numbers(2) : nullptr;
    if (sum_at >= 0) w.following.steps[sum_at].other = numbers(3);
    w.y = numbers(4);
    w.points = numbers(5);
    winograd::convolve(*chosen, w, count, sizes, numbers(6));
  });
  bind(op.outputs[0], apply_rest(op, static_cast<size_t>(work.following.count), dst));
}

}  // namespace collage_onednn
