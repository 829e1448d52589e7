/* Running sums, products, extremes and sums of exponentials along lines of a tensor.

   All of them may be joined in any order: what came before a thread's own elements is joined from
   what every other thread of its line has. */
#ifndef COLLAGE_ROWS_SCAN
#define COLLAGE_ROWS_SCAN

namespace collage {

template <class W>
struct Sum {
  using State = W;
  __device__ __forceinline__ static State none() { return W(0); }
  template <class X>
  __device__ __forceinline__ static State of(X x, int) {
    return static_cast<W>(widened(x));
  }
  __device__ __forceinline__ static State join(State a, State b) { return a + b; }
  template <class Y>
  __device__ __forceinline__ static void put(State s, long long at, Y* out, Y*) {
    out[at] = static_cast<Y>(s);
  }
};

template <class W>
struct Product : Sum<W> {
  using State = W;
  __device__ __forceinline__ static State none() { return W(1); }
  __device__ __forceinline__ static State join(State a, State b) { return a * b; }
};

/* The logarithm of a sum of exponentials; of two that are equal it is known, infinite ones too. */
template <class W>
struct Exponentials : Sum<W> {
  using State = W;
  __device__ __forceinline__ static State none() { return -INFINITY; }
  __device__ __forceinline__ static State join(State a, State b) {
    const W more = a == b ? W(0.69314718055994530942) : W(log1p(exp(-fabs(a - b))));
    return (a > b ? a : b) + more;
  }
};

template <class W>
struct Found {
  W value;
  int place;
};

/* Of equal values the last stands, and what is no number stays. */
template <class W, bool kLargest>
struct Extreme {
  using State = Found<W>;
  __device__ __forceinline__ static State none() { return {W(0), -1}; }
  template <class X>
  __device__ __forceinline__ static State of(X x, int place) {
    return {static_cast<W>(widened(x)), place};
  }
  __device__ __forceinline__ static State join(State a, State b) {
    const bool later = b.place > a.place, ahead = kLargest ? b.value > a.value : b.value < a.value;
    const bool usual = !is_none(a.value) && (ahead || (b.value == a.value && later));
    const bool taken = is_none(b.value) ? !is_none(a.value) || later : usual;
    return b.place >= 0 && (a.place < 0 || taken) ? b : a;
  }
  template <class Y, class Place>
  __device__ __forceinline__ static void put(State s, long long at, Y* out, Place* places) {
    out[at] = static_cast<Y>(s.value);
    places[at] = s.place;
  }
};

/* How threads are shared out: in a warp kColumns lines, side by side in memory if kAcross. The
   warps of a block have the same lines if kJoint, and lines of their own otherwise. */
template <int kColumns, bool kAcross, bool kJoint>
struct Share {
  static constexpr int kSegments = 32 / kColumns;

  int warp, warps, segment, column;

  __device__ __forceinline__ Share()
      : warp(threadIdx.x / 32),
        warps(blockDim.x / 32),
        segment(kAcross ? threadIdx.x % 32 / kColumns : threadIdx.x % kSegments),
        column(kAcross ? threadIdx.x % kColumns : threadIdx.x % 32 / kSegments) {}

  __device__ __forceinline__ int lane(int segment) const {
    return kAcross ? segment * kColumns + column : column * kSegments + segment;
  }
  __device__ __forceinline__ int own() const { return kJoint ? warp * kSegments + segment : segment; }
  __device__ __forceinline__ int segments() const { return kJoint ? warps * kSegments : kSegments; }
  __device__ __forceinline__ long long line(long long block) const {
    return (kJoint ? block : block * warps + warp) * kColumns + column;
  }
};

template <class State>
struct Joined {
  State before, all;
};

/* What the threads before have of the line, and what all have; totals has a place for each column
   of each warp, of which two turns use one half each. */
template <class Op, int kColumns, bool kAcross, bool kJoint>
__device__ __forceinline__ Joined<typename Op::State> joined(
    const Share<kColumns, kAcross, kJoint>& share, typename Op::State mine,
    typename Op::State* totals, int turn) {
  using State = typename Op::State;
  constexpr int kSegments = 32 / kColumns;
  State up_to = mine;
#pragma unroll
  for (int by = 1; by < kSegments; by *= 2) {
    const State other = of_lane(up_to, share.lane(max(share.segment - by, 0)));
    if (share.segment >= by) up_to = Op::join(other, up_to);
  }
  State before = of_lane(up_to, share.lane(max(share.segment - 1, 0)));
  if (share.segment == 0) before = Op::none();
  if (!kJoint) return {before, of_lane(up_to, share.lane(kSegments - 1))};
  State* given = totals + turn % 2 * 32 * kColumns;
  if (share.segment == kSegments - 1) given[share.warp * kColumns + share.column] = up_to;
  __syncthreads();
  State earlier = Op::none(), all = Op::none();
  for (int warp = share.segment; warp < share.warps; warp += kSegments) {
    const State other = given[warp * kColumns + share.column];
    all = Op::join(all, other);
    if (warp < share.warp) earlier = Op::join(earlier, other);
  }
#pragma unroll
  for (int by = 1; by < kSegments; by *= 2) {
    earlier = Op::join(earlier, of_lane(earlier, share.lane(share.segment ^ by)));
    all = Op::join(all, of_lane(all, share.lane(share.segment ^ by)));
  }
  return {Op::join(earlier, before), all};
}

/* What every chunk of a line has. */
template <class Op, int kColumns, int kItems, bool kAcross, class X>
__device__ __forceinline__ void scan_chunks(const X* __restrict__ x, void* __restrict__ chunks,
                                            long long lines, long long length, long long step,
                                            long long chunk, long long groups, long long block) {
  using State = typename Op::State;
  __shared__ alignas(64) char memory[2 * 32 * kColumns * sizeof(State)];
  const Share<kColumns, kAcross, true> share;
  const long long number = block / groups, line = share.line(block % groups);
  const long long end = min((number + 1) * chunk, length);
  const X* from = x + line_begin(line, length, step);
  State mine = Op::none();
  if (line < lines) {
    for (long long first = number * chunk; first < end; first += share.segments() * kItems) {
      X items[kItems];
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const long long place = first + share.own() + i * share.segments();
        if (place < end) items[i] = from[place * step];
      }
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const long long place = first + share.own() + i * share.segments();
        if (place < end) mine = Op::join(mine, Op::of(items[i], static_cast<int>(place)));
      }
    }
  }
  const auto found = joined<Op>(share, mine, reinterpret_cast<State*>(memory), 0);
  if (line < lines && share.own() == 0) {
    static_cast<State*>(chunks)[number * lines + line] = found.all;
  }
}

/* The running results; of a line that is in chunks, behind what the chunks before have. */
template <class Op, int kColumns, int kItems, bool kAcross, bool kJoint, bool kExclusive, class X,
          class Y, class Place>
__device__ __forceinline__ void scan(const X* __restrict__ x, const void* __restrict__ chunks,
                                     Y* __restrict__ out, Place* __restrict__ places,
                                     long long lines, long long length, long long step,
                                     long long chunk, long long groups, long long block) {
  using State = typename Op::State;
  __shared__ alignas(64) char memory[2 * 32 * kColumns * sizeof(State)];
  State* totals = reinterpret_cast<State*>(memory);
  const Share<kColumns, kAcross, kJoint> share;
  const long long number = block / groups, line = share.line(block % groups);
  const bool any = line < lines;
  const long long end = any ? min((number + 1) * chunk, length) : 0;
  const long long begin = line_begin(line, length, step);
  State carried = Op::none();
  int turn = 0;
  if (number > 0) {
    State mine = Op::none();
    for (long long i = share.own(); any && i < number; i += share.segments()) {
      mine = Op::join(mine, static_cast<const State*>(chunks)[i * lines + line]);
    }
    carried = joined<Op>(share, mine, totals, turn++).all;
  }
  const long long last = min((number + 1) * chunk, length);
  for (long long first = number * chunk; first < last; first += share.segments() * kItems) {
    const long long own = first + share.own() * kItems;
    X items[kItems];
    State run[kItems];
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      if (own + i < end) items[i] = x[begin + (own + i) * step];
    }
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const State here =
          own + i < end ? Op::of(items[i], static_cast<int>(own + i)) : Op::none();
      run[i] = i == 0 ? here : Op::join(run[i - 1], here);
    }
    const auto found = joined<Op>(share, run[kItems - 1], totals, turn++);
    const State before = Op::join(carried, found.before);
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const State here = kExclusive ? (i == 0 ? before : Op::join(before, run[i - 1]))
                                    : Op::join(before, run[i]);
      if (own + i < end) Op::put(here, begin + (own + i) * step, out, places);
    }
    carried = Op::join(carried, found.all);
  }
}

}  // namespace collage
#endif
