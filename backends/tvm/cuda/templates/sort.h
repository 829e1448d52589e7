/* A block sorts some entries by merging: each thread those that it has, then pairs of runs. */
#ifndef COLLAGE_ROWS_SORT
#define COLLAGE_ROWS_SORT

namespace collage {

template <class E>
__device__ __forceinline__ void swap_if_unordered(E& a, E& b) {
  const bool turned = b < a;
  const E low = turned ? b : a, high = turned ? a : b;
  a = low;
  b = high;
}

/* How many of the first `diagonal` elements of two sorted runs are of the first run. */
template <class E>
__device__ __forceinline__ int from_first(const E* first, int firsts, const E* second, int seconds,
                                          int diagonal) {
  int low = max(diagonal - seconds, 0), high = min(diagonal, firsts);
  while (low < high) {
    const int middle = (low + high) / 2;
    if (first[middle] < second[diagonal - 1 - middle]) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/* Some elements of two sorted runs, in order, from places on; behind their ends comes none. */
template <int kItems, class E>
__device__ __forceinline__ void merge(const E* shared, int a, int a_end, int b, int b_end,
                                      E (&items)[kItems]) {
  E first = a < a_end ? shared[a] : E::none(), second = b < b_end ? shared[b] : E::none();
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const bool other = second < first;
    items[i] = other ? second : first;
    const int next = other ? ++b : ++a;
    const E after = next < (other ? b_end : a_end) ? shared[next] : E::none();
    if (other) {
      second = after;
    } else {
      first = after;
    }
  }
}

/* Leaves in shared memory, in order, what threads have; all of them may read it then. */
template <int kItems, class E>
__device__ __forceinline__ void sort_block(E (&items)[kItems], E* shared) {
#pragma unroll
  for (int round = 0; round < kItems; ++round) {
#pragma unroll
    for (int i = round % 2; i + 1 < kItems; i += 2) swap_if_unordered(items[i], items[i + 1]);
  }
  const int own = threadIdx.x * kItems, total = blockDim.x * kItems;
#pragma unroll
  for (int i = 0; i < kItems; ++i) shared[own + i] = items[i];
  __syncthreads();
  for (int run = kItems; run < total; run *= 2) {
    const int begin = own / (2 * run) * (2 * run);
    const int middle = min(begin + run, total), end = min(begin + 2 * run, total);
    const int a = begin + from_first(shared + begin, middle - begin, shared + middle, end - middle,
                                     own - begin);
    merge(shared, a, middle, middle + own - begin - (a - begin), end, items);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kItems; ++i) shared[own + i] = items[i];
    __syncthreads();
  }
}

/* Part of a line, from one place to another, in order. */
template <int kItems, bool kDescending, class E, class X>
__device__ __forceinline__ void sort_part(E* shared, const X* __restrict__ line, long long step,
                                          int begin, int end) {
  E items[kItems];
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const int place = begin + i * blockDim.x + threadIdx.x;
    items[i] = place < end ? entry<kDescending, E>(line[place * step], place) : E::none();
  }
  sort_block(items, shared);
}

/* The first of what is sorted: values, places, or both. */
template <bool kValues, bool kPlaces, class E, class X, class Place>
__device__ __forceinline__ void put_sorted(const E* shared, const X* __restrict__ line,
                                           X* __restrict__ values, Place* __restrict__ places,
                                           long long begin, long long step, int taken) {
  for (int rank = threadIdx.x; rank < taken; rank += blockDim.x) {
    const unsigned place = shared[rank].place();
    if (kValues) values[begin + rank * step] = line[place * step];
    if (kPlaces) places[begin + rank * step] = static_cast<Place>(place);
  }
}

/* A line for each block. */
template <int kItems, bool kDescending, bool kValues, bool kPlaces, class X, class Y, class Place>
__device__ __forceinline__ void sort_line(void* memory, const X* __restrict__ x,
                                          Y* __restrict__ values, Place* __restrict__ places,
                                          long long length, long long step, long long taken,
                                          long long block) {
  EntryOf<X>* shared = static_cast<EntryOf<X>*>(memory);
  const X* line = x + line_begin(block, length, step);
  sort_part<kItems, kDescending>(shared, line, step, 0, length);
  put_sorted<kValues, kPlaces>(shared, line, reinterpret_cast<X*>(values), places,
                               line_begin(block, taken, step), step, taken);
}

/* A chunk of a line for each block, of which the first ones are kept. */
template <int kItems, bool kDescending, bool kLong, class X>
__device__ __forceinline__ void sort_chunk(void* memory, const X* __restrict__ x,
                                           void* __restrict__ kept, long long length,
                                           long long step, long long taken, long long chunk,
                                           long long chunks, long long block) {
  using E = EntryOf<X, kLong>;
  E* shared = static_cast<E*>(memory);
  const X* line = x + line_begin(block / chunks, length, step);
  const int begin = block % chunks * chunk, end = min(begin + chunk, length);
  sort_part<kItems, kDescending>(shared, line, step, begin, end);
  E* to = static_cast<E*>(kept) + block * taken;
  for (int rank = threadIdx.x; rank < taken; rank += blockDim.x) to[rank] = shared[rank];
}

/* The first of what all chunks of a line have kept. */
template <int kItems, bool kLong, bool kValues, bool kPlaces, class X, class Y, class Place>
__device__ __forceinline__ void sort_kept(void* memory, const X* __restrict__ x,
                                          const void* __restrict__ kept, Y* __restrict__ values,
                                          Place* __restrict__ places, long long length,
                                          long long step, long long taken, long long chunks,
                                          long long block) {
  using E = EntryOf<X, kLong>;
  E* shared = static_cast<E*>(memory);
  const int count = chunks * taken;
  const E* from = static_cast<const E*>(kept) + block * count;
  E items[kItems];
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const int number = i * blockDim.x + threadIdx.x;
    items[i] = number < count ? from[number] : E::none();
  }
  sort_block(items, shared);
  put_sorted<kValues, kPlaces>(shared, x + line_begin(block, length, step),
                               reinterpret_cast<X*>(values), places,
                               line_begin(block, taken, step), step, taken);
}

}  // namespace collage
#endif
