// What oneDNN has only its reference kernels for, which take a microsecond for ten elements:
// operands that are broadcast along any axes, and reductions over others than the last ones.
#pragma once

#include <limits>

#include "building.h"

namespace collage_onednn {

// Neighbouring axes of a tensor without gaps that can be counted through as one.
struct Run {
  int64_t extent;
  int64_t stride;  // of another tensor: what one step is there
};

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

// Calls `function` with one of the functions of two numbers, in the order of Binary in graph.py.
template <class Function>
inline void with_binary(int64_t algorithm, Function function) {
  switch (algorithm) {
    case 0: return function([](float a, float b) { return a + b; });
    case 1: return function([](float a, float b) { return a - b; });
    case 2: return function([](float a, float b) { return a * b; });
    case 3: return function([](float a, float b) { return a / b; });
    case 4: return function([](float a, float b) { return a > b ? a : b; });
    case 5: return function([](float a, float b) { return a < b ? a : b; });
    default: return function([](float a, float b) { return a > 0.f ? a : a * b; });
  }
}

// One row of results; `stride` is the second operand's.
template <class F>
inline void binary_row(F f, const float* a, const float* b, int64_t stride, int64_t count,
                       float* result) {
  if (stride == 0) {
    const float one = *b;
    for (int64_t i = 0; i < count; ++i) result[i] = f(a[i], one);
  } else if (stride == 1) {
    for (int64_t i = 0; i < count; ++i) result[i] = f(a[i], b[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) result[i] = f(a[i], b[i * stride]);
  }
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
    with_binary(algorithm, [&](auto f) {
#pragma omp parallel for
      for (int64_t row = 0; row < rows; ++row) {
        int64_t place = 0, left = row;
        for (size_t k = outer.size(); k-- > 0; left /= outer[k].extent)
          place += left % outer[k].extent * outer[k].stride;
        binary_row(f, a + row * inner.extent, b + place, inner.stride, inner.extent,
                   result + row * inner.extent);
      }
    });
  });
}

enum class Reduced : int64_t { mean, sum, max, min };  // same order as Reduction in graph.py

inline bool adds(Reduced how) { return how == Reduced::mean || how == Reduced::sum; }

// `count` rows of `width` numbers, `pitch` apart, into one. Sums of many are those of two halves:
// thousands of numbers added one by one lose three digits.
inline void reduce_rows(Reduced how, const float* x, int64_t count, int64_t pitch, int64_t width,
                        float* result) {
  constexpr int64_t most_in_a_row = 64;
  if (adds(how) && count > most_in_a_row) {
    const int64_t half = count / 2;
    std::vector<float> rest(width);
    reduce_rows(how, x, half, pitch, width, result);
    reduce_rows(how, x + half * pitch, count - half, pitch, width, rest.data());
    for (int64_t i = 0; i < width; ++i) result[i] += rest[i];
    return;
  }
  for (int64_t i = 0; i < width; ++i) result[i] = x[i];
  for (int64_t r = 1; r < count; ++r) {
    const float* row = x + r * pitch;
    switch (how) {
      case Reduced::mean:
      case Reduced::sum:
        for (int64_t i = 0; i < width; ++i) result[i] += row[i];
        break;
      case Reduced::max:
        for (int64_t i = 0; i < width; ++i) result[i] = row[i] > result[i] ? row[i] : result[i];
        break;
      case Reduced::min:
        for (int64_t i = 0; i < width; ++i) result[i] = row[i] < result[i] ? row[i] : result[i];
    }
  }
}

// Numbers that lie side by side, into one.
inline float reduce_line(Reduced how, const float* x, int64_t count) {
  constexpr int64_t most_in_a_line = 1024;  // Vectors add them in several sums side by side.
  if (adds(how) && count > most_in_a_line) {
    const int64_t half = count / 2;
    return reduce_line(how, x, half) + reduce_line(how, x + half, count - half);
  }
  float sum = 0.f, most = x[0], least = x[0];
  switch (how) {
    case Reduced::mean:
    case Reduced::sum:
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < count; ++i) sum += x[i];
      return sum;
    case Reduced::max:
#pragma omp simd reduction(max : most)
      for (int64_t i = 0; i < count; ++i) most = std::max(most, x[i]);
      return most;
    default:
#pragma omp simd reduction(min : least)
      for (int64_t i = 0; i < count; ++i) least = std::min(least, x[i]);
      return least;
  }
}

// Over the second of three axes that lie in this order. Few and narrow results are shared out by
// parts of what each of them is made of.
inline void Region::reduce(int64_t algorithm, int src, int dst, const int64_t (&extents)[3]) {
  constexpr int64_t most_columns = 512;
  const int64_t outer = extents[0], count = extents[1], width = extents[2];
  const auto how = static_cast<Reduced>(algorithm);
  const int64_t blocks = (width + most_columns - 1) / most_columns;
  const bool divided = outer * blocks < threads_ && count >= 64 * threads_;
  const int64_t parts = divided ? threads_ : 1;
  const int partial = divided ? storage_.fresh(row_major({outer * parts * width})) : dst;
  emit_host({{0, src}, {0, dst}, {0, partial}}, [=](const std::vector<void*>& data) {
    const auto* x = static_cast<const float*>(data[0]);
    auto* result = static_cast<float*>(data[1]);
    auto* sums = parts > 1 ? static_cast<float*>(data[2]) : result;
#pragma omp parallel for
    for (int64_t task = 0; task < outer * parts * blocks; ++task) {
      const int64_t block = task % blocks, part = task / blocks % parts;
      const int64_t o = task / blocks / parts;
      const int64_t begin = count * part / parts, end = count * (part + 1) / parts;
      const int64_t column = block * most_columns;
      const float* from = x + (o * count + begin) * width + column;
      float* to = sums + (o * parts + part) * width + column;
      if (width == 1) *to = reduce_line(how, from, end - begin);
      else reduce_rows(how, from, end - begin, width, std::min(most_columns, width - column), to);
    }
    for (int64_t o = 0; o < (parts > 1 ? outer : 0); ++o)
      reduce_rows(how, sums + o * parts * width, parts, width, width, result + o * width);
    if (how == Reduced::mean)
      for (int64_t i = 0; i < outer * width; ++i) result[i] /= static_cast<float>(count);
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
  reduce(op.ints[0], src, dst, counts);
  bind(op.outputs[0], dst);
  return true;
}

}  // namespace collage_onednn
