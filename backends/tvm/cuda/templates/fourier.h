/* Fourier transforms of rows: Stockham's steps between two pieces of shared memory, which leave the
   frequencies in order. A thread has the values of one butterfly in registers; of a large prime
   factor it makes one value after the other. */
#ifndef COLLAGE_FOURIER
#define COLLAGE_FOURIER

namespace collage {

enum FourierKind { kComplex, kFromReal, kToReal };

/* Where a value lies: one place in sixteen is left out, so that values a power of two apart are in
   different banks. */
__device__ __forceinline__ int fourier_at(int i) { return i + (i >> 4); }
__host__ __device__ constexpr int fourier_room(int points) { return points + points / 16 + 1; }

__device__ __forceinline__ float2 operator+(float2 a, float2 b) {
  return make_float2(a.x + b.x, a.y + b.y);
}
__device__ __forceinline__ float2 operator-(float2 a, float2 b) {
  return make_float2(a.x - b.x, a.y - b.y);
}
__device__ __forceinline__ float2 times(float2 a, float2 b) {
  return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

/* Times the root of unity a quarter of a turn on. */
template <bool kInverse>
__device__ __forceinline__ float2 turned(float2 a) {
  return kInverse ? make_float2(-a.y, a.x) : make_float2(a.y, -a.x);
}

template <bool kInverse>
__device__ __forceinline__ void butterfly_of_4(float2& a, float2& b, float2& c, float2& d) {
  const float2 even = a + c, odd = a - c, up = b + d, over = turned<kInverse>(b - d);
  a = even + up;
  b = odd + over;
  c = even - up;
  d = odd - over;
}

/* Of an odd prime: sums and differences of opposite values, weighed by the roots of unity, of which
   the table has every kApart-th. */
template <int kRadix, bool kInverse>
struct Butterfly {
  __device__ __forceinline__ static void of(float2* v, const float2* table, int apart) {
    constexpr int kHalf = (kRadix - 1) / 2;
    float2 sums[kHalf], differences[kHalf], roots[kHalf];
    const float2 first = v[0];
    float2 whole = first;
#pragma unroll
    for (int j = 0; j < kHalf; ++j) {
      sums[j] = v[j + 1] + v[kRadix - 1 - j];
      differences[j] = v[j + 1] - v[kRadix - 1 - j];
      roots[j] = table[(j + 1) * apart];
      whole = whole + sums[j];
    }
    v[0] = whole;
#pragma unroll
    for (int k = 1; k <= kHalf; ++k) {
      float2 straight = first, across = make_float2(0.0f, 0.0f);
#pragma unroll
      for (int j = 1; j <= kHalf; ++j) {
        const int turns = j * k % kRadix, near = turns <= kHalf ? turns : kRadix - turns;
        const float cosine = roots[near - 1].x;
        const float sine = turns <= kHalf ? roots[near - 1].y : -roots[near - 1].y;
        straight.x += sums[j - 1].x * cosine;
        straight.y += sums[j - 1].y * cosine;
        across.x += differences[j - 1].y * sine;
        across.y += differences[j - 1].x * sine;
      }
      v[k] = make_float2(straight.x - across.x, straight.y + across.y);
      v[kRadix - k] = make_float2(straight.x + across.x, straight.y - across.y);
    }
  }
};

/* A step that only moves values. */
template <bool kInverse>
struct Butterfly<1, kInverse> {
  __device__ __forceinline__ static void of(float2*, const float2*, int) {}
};

template <bool kInverse>
struct Butterfly<2, kInverse> {
  __device__ __forceinline__ static void of(float2* v, const float2*, int) {
    const float2 other = v[1];
    v[1] = v[0] - other;
    v[0] = v[0] + other;
  }
};

template <bool kInverse>
struct Butterfly<4, kInverse> {
  __device__ __forceinline__ static void of(float2* v, const float2*, int) {
    butterfly_of_4<kInverse>(v[0], v[1], v[2], v[3]);
  }
};

template <bool kInverse>
struct Butterfly<8, kInverse> {
  __device__ __forceinline__ static void of(float2* v, const float2*, int) {
    constexpr float kRoot = 0.70710678118654752440f;
    butterfly_of_4<kInverse>(v[0], v[2], v[4], v[6]);
    butterfly_of_4<kInverse>(v[1], v[3], v[5], v[7]);
    const float2 one = v[3] + turned<kInverse>(v[3]);
    const float2 three = turned<kInverse>(v[7] + turned<kInverse>(v[7]));
    const float2 odd[4] = {v[1], make_float2(one.x * kRoot, one.y * kRoot),
                           turned<kInverse>(v[5]), make_float2(three.x * kRoot, three.y * kRoot)};
    const float2 even[4] = {v[0], v[2], v[4], v[6]};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      v[k] = even[k] + odd[k];
      v[k + 4] = even[k] - odd[k];
    }
  }
};

/* Of kOne times kTwo values: butterflies of every kTwo-th, turned, and of what those have alike. */
template <int kOne, int kTwo, bool kInverse>
struct TwoButterflies {
  __device__ __forceinline__ static void of(float2* v, const float2* table, int apart) {
    float2 half[kTwo][kOne];
#pragma unroll
    for (int i = 0; i < kTwo; ++i) {
#pragma unroll
      for (int j = 0; j < kOne; ++j) half[i][j] = v[kTwo * j + i];
      Butterfly<kOne, kInverse>::of(half[i], table, apart * kTwo);
#pragma unroll
      for (int k = 1; k < kOne; ++k) {
        if (i > 0) half[i][k] = times(half[i][k], table[i * k * apart]);
      }
    }
#pragma unroll
    for (int k = 0; k < kOne; ++k) {
      float2 alike[kTwo];
#pragma unroll
      for (int i = 0; i < kTwo; ++i) alike[i] = half[i][k];
      Butterfly<kTwo, kInverse>::of(alike, table, apart * kOne);
#pragma unroll
      for (int i = 0; i < kTwo; ++i) v[k + kOne * i] = alike[i];
    }
  }
};

template <bool kInverse>
struct Butterfly<9, kInverse> : TwoButterflies<3, 3, kInverse> {};

template <bool kInverse>
struct Butterfly<16, kInverse> : TwoButterflies<4, 4, kInverse> {};

/* Values in shared memory, of which each row has its own. */
template <int kPoints>
struct SharedRows {
  float2* values;

  __device__ __forceinline__ float2& at(int row, int i) const {
    return values[row * fourier_room(kPoints) + fourier_at(i)];
  }
  __device__ __forceinline__ float2 operator()(int row, int i) const { return at(row, i); }
  __device__ __forceinline__ void operator()(int row, int i, float2 value) const {
    at(row, i) = value;
  }
};

/* A step, behind others whose factors have the product kStride; the table has kRoots roots of unity
   for each value. A thread has all values of a butterfly on their way before it uses any. */
template <int kPoints, int kRadix, int kStride, int kRoots, int kThreads, bool kInverse, class Load,
          class Store>
__device__ __forceinline__ void fourier_step(const Load& load, const Store& store,
                                             const float2* __restrict__ table, int rows) {
  constexpr int kParts = kPoints / kRadix;
  if constexpr (kRadix <= 13 || kRadix == 16) {
#pragma unroll 1
    for (int i = threadIdx.x; i < rows * kParts; i += kThreads) {
      const int row = i / kParts, own = i % kParts;
      const int part = own / kStride, behind = own % kStride;
      float2 v[kRadix];
#pragma unroll
      for (int j = 0; j < kRadix; ++j) v[j] = load(row, own + j * kParts);
      Butterfly<kRadix, kInverse>::of(v, table, kParts * kRoots);
#pragma unroll
      for (int k = 0; k < kRadix; ++k) {
        const bool turns = k > 0 && kStride * kRadix < kPoints;
        const float2 value = turns ? times(v[k], table[part * k * kStride * kRoots]) : v[k];
        store(row, behind + kStride * (kRadix * part + k), value);
      }
    }
  } else {
/* Values that are opposite, and frequencies that are, together: they have the same weights. */
    constexpr int kHalf = (kRadix - 1) / 2, kOwn = kParts * (kHalf + 1);
#pragma unroll 1
    for (int i = threadIdx.x; i < rows * kOwn; i += kThreads) {
      const int row = i / kOwn, own = i % kOwn, behind = own % kStride;
      const int k = own / kStride % (kHalf + 1), part = own / (kStride * (kHalf + 1));
      const int begin = behind + kStride * part;
      float2 straight = load(row, begin), across = make_float2(0.0f, 0.0f);
      int turn = 0;
#pragma unroll 8
      for (int j = 1; j <= kHalf; ++j) {
        turn += k;
        if (turn >= kRadix) turn -= kRadix;
        const float2 root = table[turn * (kParts * kRoots)];
        const float2 one = load(row, begin + j * kParts);
        const float2 other = load(row, begin + (kRadix - j) * kParts);
        straight.x += (one.x + other.x) * root.x;
        straight.y += (one.y + other.y) * root.x;
        across.x += (one.y - other.y) * root.y;
        across.y += (one.x - other.x) * root.y;
      }
      const auto put = [&](int k, float2 value) {
        if (kStride * kRadix < kPoints) value = times(value, table[part * k * kStride * kRoots]);
        store(row, behind + kStride * (kRadix * part + k), value);
      };
      put(k, make_float2(straight.x - across.x, straight.y + across.y));
      if (k > 0) put(kRadix - k, make_float2(straight.x + across.x, straight.y - across.y));
    }
  }
}

/* All steps: the first one loads, the last one stores, and between them values go from one piece of
   shared memory to the other. */
template <int kPoints, int kStride, int kRoots, int kThreads, bool kInverse, int kRadix, int... kRest,
          class Load, class Store>
__device__ __forceinline__ void fourier_steps(const Load& load, const Store& store, float2* to,
                                              float2* other, const float2* __restrict__ table,
                                              int rows) {
  if constexpr (sizeof...(kRest) == 0) {
    fourier_step<kPoints, kRadix, kStride, kRoots, kThreads, kInverse>(load, store, table, rows);
  } else {
    const SharedRows<kPoints> between{to};
    fourier_step<kPoints, kRadix, kStride, kRoots, kThreads, kInverse>(load, between, table, rows);
    __syncthreads();
    fourier_steps<kPoints, kStride * kRadix, kRoots, kThreads, kInverse, kRest...>(
        between, store, other, to, table, rows);
  }
}

/* Two neighbours, which one access has. */
template <class X>
struct alignas(2 * sizeof(X)) Neighbours {
  X first, second;
};

template <class X>
__device__ __forceinline__ float2 pair_at(const X* x, long long i) {
  const Neighbours<X> pair = reinterpret_cast<const Neighbours<X>*>(x)[i];
  return make_float2(static_cast<float>(pair.first), static_cast<float>(pair.second));
}

template <class Y>
__device__ __forceinline__ void put_pair(Y* out, long long i, float2 value) {
  reinterpret_cast<Neighbours<Y>*>(out)[i] = {static_cast<Y>(value.x), static_cast<Y>(value.y)};
}

/* kLength values of each row are real, or complex; an even number of real ones are transformed as
   half as many complex ones. What values that come out are multiplied by, one by one, stands behind
   the roots of unity, if kWindow. */
template <FourierKind kKind, int kLength, int kTogether, int kThreads, bool kInverse, bool kWindow,
          int... kFactors, class X, class Y>
__device__ __forceinline__ void fourier(void* memory, const X* __restrict__ x,
                                        const float* __restrict__ roots, Y* __restrict__ out,
                                        long long count, float scale, long long block) {
  constexpr bool kPaired = kKind != kComplex && kLength % 2 == 0;
  constexpr int kPoints = kPaired ? kLength / 2 : kLength, kRoots = kPaired ? 2 : 1;
  constexpr int kBins = kLength / 2 + 1;
  const float2* __restrict__ table = reinterpret_cast<const float2*>(roots);
  const float* __restrict__ weights = roots + 2 * kLength;
  float2* one = static_cast<float2*>(memory);
  float2* other = one + kTogether * fourier_room(kPoints);
  const long long first = block * kTogether;
  const int rows = static_cast<int>(min(static_cast<long long>(kTogether), count - first));
#ifdef __CUDA_ARCH__
  /* On its way while values are: each step would wait for what it needs. */
  constexpr int kLine = 128 / sizeof(float2);
  for (int i = threadIdx.x * kLine; i < kLength; i += kThreads * kLine) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(table + i));
  }
#endif

  const auto load = [&](int row, int k) {
    if constexpr (kKind == kToReal) {
      const long long begin = (first + row) * kBins;
      if constexpr (kPaired) {
        float2 low = pair_at(x, begin + k), high = pair_at(x, begin + kPoints - k);
        if (k == 0) low.y = high.y = 0.0f;
        const float2 odd = times(make_float2(low.x - high.x, low.y + high.y), table[k]);
        return make_float2(low.x + high.x - odd.y, low.y - high.y + odd.x);
      } else {
        float2 value = pair_at(x, begin + (k < kBins ? k : kLength - k));
        if (k == 0) value.y = 0.0f;
        if (k >= kBins) value.y = -value.y;
        return value;
      }
    } else if constexpr (kKind == kFromReal && !kPaired) {
      return make_float2(static_cast<float>(x[(first + row) * kPoints + k]), 0.0f);
    } else {
      return pair_at(x, (first + row) * kPoints + k);
    }
  };
  const auto store = [&](int row, int k, float2 value) {
    value = make_float2(value.x * scale, value.y * scale);
    if constexpr (kKind == kFromReal) {
      if (k < kBins) put_pair(out, (first + row) * kBins + k, value);
    } else if constexpr (kKind == kToReal && !kPaired) {
      if (kWindow) value.x *= weights[k];
      out[(first + row) * kPoints + k] = static_cast<Y>(value.x);
    } else {
      if (kWindow) value = make_float2(value.x * weights[2 * k], value.y * weights[2 * k + 1]);
      put_pair(out, (first + row) * kPoints + k, value);
    }
  };
  if constexpr (kKind == kFromReal && kPaired) {
    const SharedRows<kPoints> found{sizeof...(kFactors) % 2 == 1 ? one : other};
    fourier_steps<kPoints, 1, kRoots, kThreads, kInverse, kFactors...>(load, found, one, other,
                                                                       table, rows);
    __syncthreads();
    /* Two frequencies together, which are of the same two values. */
    constexpr int kPairs = kPoints / 2 + 1;
#pragma unroll 4
    for (int i = threadIdx.x; i < rows * kPairs; i += kThreads) {
      const int row = i / kPairs, k = i % kPairs;
      const float2 low = found(row, k), high = found(row, (kPoints - k) % kPoints);
      const float2 even = make_float2(0.5f * (low.x + high.x), 0.5f * (low.y - high.y));
      const float2 opposite = make_float2(0.5f * (low.y + high.y), 0.5f * (high.x - low.x));
      const float2 odd = times(opposite, table[k]);
      store(row, k, even + odd);
      store(row, kPoints - k, make_float2(even.x - odd.x, odd.y - even.y));
    }
  } else {
    fourier_steps<kPoints, 1, kRoots, kThreads, kInverse, kFactors...>(load, store, one, other,
                                                                       table, rows);
  }
}

}  // namespace collage
#endif
