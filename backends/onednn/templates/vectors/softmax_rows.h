// Softmax of rows, in each namespace of lanes. With AVX-512 the library's kernel takes 1.7 to 2.7
// times as long: its exponential has more steps, and it keeps one sum, each addition of which waits
// for the one before. Its logarithms of softmax take eight times as long, and are fifteen times as
// far off.

COLLAGE_LANES inline float largest_of(const float* x, int64_t count) {
  const Lanes none = all(-std::numeric_limits<float>::infinity());
  Lanes even = none, odd = none;
  int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    even = larger(even, load(x + i));
    odd = larger(odd, load(x + i + kLanes));
  }
  for (; i < count; i += kLanes) even = larger(even, load_first(x + i, count - i, none));
  return largest_lane(larger(even, odd));
}

// Gives the sum of what it writes.
COLLAGE_LANES inline float exponentials_of(const float* x, float* y, int64_t count,
                                           float largest) {
  const Lanes shift = all(largest);
  Lanes even = all(0.f), odd = even;
  int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    const Lanes a = exponential(sub(load(x + i), shift));
    const Lanes b = exponential(sub(load(x + i + kLanes), shift));
    even = add(even, a);
    odd = add(odd, b);
    store(y + i, a);
    store(y + i + kLanes, b);
  }
  for (; i < count; i += kLanes) {
    const Lanes a = exponential(sub(load_first(x + i, count - i, all(0.f)), shift));
    even = add(even, kept(a, count - i));
    store_first(y + i, count - i, a);
  }
  return sum_of_lanes(add(even, odd));
}

COLLAGE_LANES inline void softmax_of_row(const float* x, float* y, int64_t count) {
  const float sum = exponentials_of(x, y, count, largest_of(x, count));
  const Lanes factor = all(1.f / sum);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(y + i, mul(load(y + i), factor));
  if (i < count)
    store_first(y + i, count - i, mul(load_first(y + i, count - i, all(0.f)), factor));
}

// `y` is not `x`.
COLLAGE_LANES inline void log_softmax_of_row(const float* x, float* y, int64_t count) {
  const float largest = largest_of(x, count);
  const float logarithm = std::log(exponentials_of(x, y, count, largest));
  const Lanes first = all(largest), second = all(logarithm);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    store(y + i, sub(sub(load(x + i), first), second));
  if (i < count) {
    const Lanes distance = sub(load_first(x + i, count - i, all(0.f)), first);
    store_first(y + i, count - i, sub(distance, second));
  }
}

// Rows one after the other.
void softmax_of_rows(const float* x, float* y, int64_t rows, int64_t count, bool logarithm) {
#pragma omp parallel for
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t place = row * count;
    logarithm ? log_softmax_of_row(x + place, y + place, count)
              : softmax_of_row(x + place, y + place, count);
  }
}
