/* Places in sorted rows: a thread for each value, which halves its row. */
#ifndef COLLAGE_ROWS_SEARCH
#define COLLAGE_ROWS_SEARCH

namespace collage {

/* How many of a row come before a value: all of them before what is no number. */
template <bool kRight, class X, class Place>
__device__ __forceinline__ void search(const X* __restrict__ rows, const X* __restrict__ values,
                                       Place* __restrict__ places, long long count,
                                       long long extent, long long width, long long block) {
  const long long number = block * blockDim.x + threadIdx.x;
  if (number >= count) return;
  const X* row = rows + number / width * extent;
  const Wide<X> value = widened(values[number]);
  long long found = 0, left = is_none(value) ? 0 : extent;
  while (left > 0) {
    const long long half = left / 2;
    const Wide<X> middle = widened(row[found + half]);
    const bool before = kRight ? middle <= value : middle < value;
    found = before ? found + half + 1 : found;
    left = before ? left - half - 1 : half;
  }
  places[number] = is_none(value) ? extent : found;
}

}  // namespace collage
#endif
