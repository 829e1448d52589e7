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
  __device__ __forceinline__ static void of(float2* v, const float2* __restrict__ table, int apart) {
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

/* A step, behind others whose factors have the product kStride; the table has kRoots roots of unity
   for each value. */
template <int kPoints, int kRadix, int kStride, int kRoots, bool kInverse>
__device__ __forceinline__ void fourier_step(const float2* from, float2* to,
                                             const float2* __restrict__ table, int rows) {
  constexpr int kWritten = 13, kParts = kPoints / kRadix;
  if constexpr (kRadix <= kWritten) {
    for (int i = threadIdx.x; i < rows * kParts; i += blockDim.x) {
      const int row = i / kParts * fourier_room(kPoints), own = i % kParts;
      const int part = own / kStride, behind = own % kStride;
      float2 v[kRadix];
#pragma unroll
      for (int j = 0; j < kRadix; ++j) v[j] = from[row + fourier_at(own + j * kParts)];
      Butterfly<kRadix, kInverse>::of(v, table, kParts * kRoots);
#pragma unroll
      for (int k = 0; k < kRadix; ++k) {
        const bool turns = k > 0 && kStride * kRadix < kPoints;
        const float2 value = turns ? times(v[k], table[part * k * kStride * kRoots]) : v[k];
        to[row + fourier_at(behind + kStride * (kRadix * part + k))] = value;
      }
    }
  } else {
    for (int i = threadIdx.x; i < rows * kPoints; i += blockDim.x) {
      const int row = i / kPoints * fourier_room(kPoints), own = i % kPoints;
      const int behind = own % kStride, k = own / kStride % kRadix, part = own / (kStride * kRadix);
      float2 sum = make_float2(0.0f, 0.0f);
      int turn = 0;
#pragma unroll 8
      for (int j = 0; j < kRadix; ++j) {
        const float2 value = from[row + fourier_at(behind + kStride * part + j * kParts)];
        sum = sum + times(value, table[turn * (kParts * kRoots)]);
        turn += k;
        if (turn >= kRadix) turn -= kRadix;
      }
      if (kStride * kRadix < kPoints) sum = times(sum, table[part * k * kStride * kRoots]);
      to[row + fourier_at(own)] = sum;
    }
  }
}

/* All steps; the frequencies are in what comes back. */
template <int kPoints, int kStride, int kRoots, bool kInverse>
__device__ __forceinline__ float2* fourier_steps(float2* from, float2*, const float2*, int) {
  return from;
}

template <int kPoints, int kStride, int kRoots, bool kInverse, int kRadix, int... kRest>
__device__ __forceinline__ float2* fourier_steps(float2* from, float2* to,
                                                 const float2* __restrict__ table, int rows) {
  fourier_step<kPoints, kRadix, kStride, kRoots, kInverse>(from, to, table, rows);
  __syncthreads();
  return fourier_steps<kPoints, kStride * kRadix, kRoots, kInverse, kRest...>(to, from, table, rows);
}

template <class X>
__device__ __forceinline__ float2 pair_at(const X* x, long long i) {
  return make_float2(static_cast<float>(x[2 * i]), static_cast<float>(x[2 * i + 1]));
}

/* kLength values of each row are real, or complex; an even number of real ones are transformed as
   half as many complex ones. weights: by what values that come out are multiplied, one by one,
   behind the table, if kWindow. */
template <FourierKind kKind, int kLength, int kTogether, bool kInverse, bool kWindow, int... kFactors,
          class X, class Y>
__device__ __forceinline__ void fourier(void* memory, const X* __restrict__ x,
                                        const float* __restrict__ roots, Y* __restrict__ out,
                                        long long count, float scale, long long block) {
  constexpr bool kPaired = kKind != kComplex && kLength % 2 == 0;
  constexpr int kPoints = kPaired ? kLength / 2 : kLength, kRoots = kPaired ? 2 : 1;
  constexpr int kBins = kLength / 2 + 1, kRoom = fourier_room(kPoints);
  const float2* __restrict__ table = reinterpret_cast<const float2*>(roots);
  const float* __restrict__ weights = roots + 2 * kLength;
  float2* from = static_cast<float2*>(memory);
  float2* to = from + kTogether * kRoom;
  const long long first = block * kTogether;
  const int rows = static_cast<int>(min(static_cast<long long>(kTogether), count - first));

  if constexpr (kKind == kToReal) {
    const X* given = x + first * 2 * kBins;
    for (int i = threadIdx.x; i < rows * kPoints; i += blockDim.x) {
      const int row = i / kPoints, k = i % kPoints;
      const long long begin = static_cast<long long>(row) * kBins;
      float2 value;
      if constexpr (kPaired) {
        float2 one = pair_at(given, begin + k), two = pair_at(given, begin + kPoints - k);
        if (k == 0) one.y = two.y = 0.0f;
        const float2 odd = times(make_float2(one.x - two.x, one.y + two.y), table[k]);
        value = make_float2(one.x + two.x - odd.y, one.y - two.y + odd.x);
      } else {
        value = pair_at(given, begin + (k < kBins ? k : kLength - k));
        if (k == 0) value.y = 0.0f;
        if (k >= kBins) value.y = -value.y;
      }
      from[row * kRoom + fourier_at(k)] = value;
    }
  } else {
    for (int i = threadIdx.x; i < rows * kPoints; i += blockDim.x) {
      float2 value;
      if constexpr (kKind == kFromReal && !kPaired) {
        value = make_float2(static_cast<float>(x[first * kPoints + i]), 0.0f);
      } else {
        value = pair_at(x, first * kPoints + i);
      }
      from[i / kPoints * kRoom + fourier_at(i % kPoints)] = value;
    }
  }
  __syncthreads();
  const float2* found =
      fourier_steps<kPoints, 1, kRoots, kInverse, kFactors...>(from, to, table, rows);

  if constexpr (kKind == kFromReal) {
    for (int i = threadIdx.x; i < rows * kBins; i += blockDim.x) {
      const int row = i / kBins, k = i % kBins;
      float2 value;
      if constexpr (kPaired) {
        const float2 one = found[row * kRoom + fourier_at(k % kPoints)];
        const float2 two = found[row * kRoom + fourier_at((kPoints - k) % kPoints)];
        const float2 odd = times(make_float2(one.y + two.y, two.x - one.x), table[k]);
        value = make_float2(0.5f * (one.x + two.x + odd.x), 0.5f * (one.y - two.y + odd.y));
      } else {
        value = found[row * kRoom + fourier_at(k)];
      }
      const long long at = 2 * (first * kBins + i);
      out[at] = static_cast<Y>(value.x * scale);
      out[at + 1] = static_cast<Y>(value.y * scale);
    }
  } else {
    for (int i = threadIdx.x; i < rows * kPoints; i += blockDim.x) {
      const int k = i % kPoints;
      const float2 value = found[i / kPoints * kRoom + fourier_at(k)];
      if constexpr (kKind == kToReal && !kPaired) {
        out[first * kPoints + i] = static_cast<Y>(value.x * scale * (kWindow ? weights[k] : 1.0f));
      } else {
        const long long at = 2 * (first * kPoints + i);
        out[at] = static_cast<Y>(value.x * scale * (kWindow ? weights[2 * k] : 1.0f));
        out[at + 1] = static_cast<Y>(value.y * scale * (kWindow ? weights[2 * k + 1] : 1.0f));
      }
    }
  }
}

}  // namespace collage
#endif
