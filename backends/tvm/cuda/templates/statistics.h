/* The middle or the most frequent element of each line: a block sorts it, and looks it up. */
#ifndef COLLAGE_ROWS_STATISTICS
#define COLLAGE_ROWS_STATISTICS

namespace collage {

enum Statistic { kMedian, kNumbersMedian, kMode };

/* Whether an entry is of what is no number; those come last. */
template <class X>
__device__ __forceinline__ bool of_none(EntryOf<X> entry) {
  using Key = typename KeyOf<X>::type;
  return !KeyOf<X>::kNumbersOnly && entry.key() == static_cast<Key>(~Key(0));
}

template <class X>
__device__ __forceinline__ int numbers_of(const EntryOf<X>* sorted, int count) {
  int low = 0, high = count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (of_none<X>(sorted[middle])) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

/* Where the run of equals begins that ends at a place: of what is no number there, none equals it. */
template <class X>
__device__ __forceinline__ int run_begin(const EntryOf<X>* sorted, int end) {
  if (of_none<X>(sorted[end])) return end;
  int low = 0, high = end;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (sorted[middle].key() == sorted[end].key()) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

/* Of all threads' numbers the largest, which the first thread gets. */
__device__ __forceinline__ long long largest(long long mine) {
  __shared__ alignas(64) long long of_warps[32];
#pragma unroll
  for (int by = 16; by > 0; by /= 2) mine = max(mine, of_lane(mine, threadIdx.x % 32 ^ by));
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < static_cast<int>(blockDim.x / 32); ++warp) {
      mine = max(mine, of_warps[warp]);
    }
  }
  return mine;
}

template <int kItems, Statistic kWhich, class X, class Y, class Place>
__device__ __forceinline__ void statistic(void* memory, const X* __restrict__ x,
                                          Y* __restrict__ values, Place* __restrict__ places,
                                          long long length, long long step, long long block) {
  EntryOf<X>* sorted = static_cast<EntryOf<X>*>(memory);
  const X* line = x + line_begin(block, length, step);
  const int count = length;
  sort_part<kItems, false>(sorted, line, step, 0, count);
  int rank = 0;
  if (kWhich == kMode) {
    /* The longest run, and of several the first: its end has the last place. */
    long long best = 0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
      if (i + 1 < count && sorted[i].key() == sorted[i + 1].key() && !of_none<X>(sorted[i])) continue;
      const long long times = i - run_begin<X>(sorted, i) + 1;
      best = max(best, times << 32 | static_cast<long long>(count - i));
    }
    best = largest(best);
    rank = count - static_cast<int>(best & 0xffffffff);
  } else {
    const int numbers = threadIdx.x == 0 ? numbers_of<X>(sorted, count) : count;
    rank = kWhich == kMedian && numbers < count ? numbers : (max(numbers, 1) - 1) / 2;
  }
  if (threadIdx.x == 0) {
    const unsigned place = sorted[rank].place();
    values[block] = line[place * step];
    places[block] = place;
  }
}

}  // namespace collage
#endif
