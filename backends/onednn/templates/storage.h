// Where values live: groups of memory, views into them, and one arena for all intermediates.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

namespace collage_onednn {

using dnnl::memory;
using desc = dnnl::memory::desc;

constexpr size_t kCacheLine = 64;

class Buffer {
 public:
  explicit Buffer(size_t bytes) {
    // Big buffers on huge pages: packed weights and the arena are swept once per call.
    constexpr size_t huge = size_t(2) << 20;
    size_t alignment = bytes >= huge ? huge : kCacheLine;
    bytes = (bytes + alignment - 1) / alignment * alignment;
    data_ = std::aligned_alloc(alignment, std::max(bytes, alignment));
    if (!data_) throw std::bad_alloc();
    if (alignment == huge) madvise(data_, bytes, MADV_HUGEPAGE);
  }
  ~Buffer() { std::free(data_); }
  Buffer(Buffer&& other) noexcept : data_(other.data_) { other.data_ = nullptr; }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  char* data() const { return static_cast<char*>(data_); }

 private:
  void* data_;
};

// One piece of memory. Several values (views, in-place results, slices of a concatenation) share it.
struct Group {
  enum Kind { arena, input, output, fixed } kind = arena;
  int index = 0;             // of the argument, for inputs and outputs
  size_t bytes = 0;
  char* data = nullptr;      // for fixed ones
  size_t arena_offset = 0;
  int first = INT_MAX, last = -1;  // steps that touch it
  std::vector<int> members;  // logical tensors that live in it
};

struct Value {
  desc md;
  int group;
  size_t offset;  // bytes from the group's begin
};

class Storage {
 public:
  int fresh(const desc& md) {
    Group g;
    g.bytes = md.get_size();
    return add(md, g);
  }
  int external(Group::Kind kind, int index, const desc& md) {
    Group g;
    g.kind = kind;
    g.index = index;
    g.bytes = md.get_size();
    return add(md, g);
  }
  int fixed(const void* data, const desc& md) {
    Group g;
    g.kind = Group::fixed;
    g.bytes = md.get_size();
    g.data = static_cast<char*>(const_cast<void*>(data));
    return add(md, g);
  }
  int owned(const desc& md) {
    buffers_.emplace_back(md.get_size());
    return fixed(buffers_.back().data(), md);
  }
  int view(int value, const desc& md, size_t extra = 0) {
    values_.push_back({md, values_[value].group, values_[value].offset + extra});
    return static_cast<int>(values_.size()) - 1;
  }

  // By value: new values move the old ones. A descriptor is a shared handle.
  desc md(int value) const { return values_[value].md; }
  Group& group(int value) { return groups_[values_[value].group]; }
  int group_id(int value) const { return values_[value].group; }
  size_t count() const { return values_.size(); }
  size_t offset(int value) const { return values_[value].offset; }

  void touch(int value, int step) {
    Group& g = group(value);
    g.first = std::min(g.first, step);
    g.last = std::max(g.last, step);
  }

  // Whether the value fills its group, so that the group can be moved or given away as a whole.
  bool whole(int value) {
    return values_[value].offset == 0 && group(value).bytes == md(value).get_size();
  }

  // Make the memory of `value` a part of the memory of `parent`, at `extra` bytes from it.
  void adopt(int value, int parent, size_t extra) {
    int from = values_[value].group, to = values_[parent].group;
    size_t shift = values_[parent].offset + extra;
    for (auto& v : values_) {
      if (v.group != from) continue;
      v.group = to;
      v.offset += shift;
    }
    Group &a = groups_[from], &b = groups_[to];
    b.first = std::min(a.first, b.first);
    b.last = std::max(a.last, b.last);
    b.members.insert(b.members.end(), a.members.begin(), a.members.end());
    a.members.clear();
    a.bytes = 0;
  }

  // Lay the arena out: big groups first, each at the lowest place free during its lifetime.
  void plan_arena() {
    std::vector<int> order, placed;
    for (size_t i = 0; i < groups_.size(); ++i)
      if (groups_[i].kind == Group::arena && groups_[i].last >= 0 && groups_[i].bytes)
        order.push_back(static_cast<int>(i));
    std::sort(order.begin(), order.end(),
              [&](int a, int b) { return groups_[a].bytes > groups_[b].bytes; });
    size_t total = 0;
    for (int i : order) {
      Group& g = groups_[i];
      std::vector<std::pair<size_t, size_t>> busy;
      for (int j : placed) {
        const Group& o = groups_[j];
        if (o.first <= g.last && g.first <= o.last)
          busy.emplace_back(o.arena_offset, o.arena_offset + padded(o.bytes));
      }
      std::sort(busy.begin(), busy.end());
      size_t place = 0;
      for (auto& [begin, end] : busy) {
        if (place + padded(g.bytes) <= begin) break;
        place = std::max(place, end);
      }
      g.arena_offset = place;
      total = std::max(total, place + padded(g.bytes));
      placed.push_back(i);
    }
    buffers_.emplace_back(total);
    for (int i : order) groups_[i].data = buffers_.back().data() + groups_[i].arena_offset;
  }

 private:
  // A line between neighbours: kernels may read a vector past the end of a buffer.
  static size_t padded(size_t bytes) {
    return (bytes + 2 * kCacheLine - 1) / kCacheLine * kCacheLine;
  }
  int add(const desc& md, const Group& g) {
    groups_.push_back(g);
    values_.push_back({md, static_cast<int>(groups_.size()) - 1, 0});
    return static_cast<int>(values_.size()) - 1;
  }

  std::vector<Group> groups_;
  std::vector<Value> values_;
  std::vector<Buffer> buffers_;
};

}  // namespace collage_onednn
