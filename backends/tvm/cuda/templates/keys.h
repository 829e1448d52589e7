/* Whole numbers that are in order where elements are, and with them their places in the line.

   What is no number is the largest, and both zeros are one; in a descending order all is turned
   round, but for the places of equal elements. */
#ifndef COLLAGE_ROWS_KEYS
#define COLLAGE_ROWS_KEYS

namespace collage {

template <class Bits, class T>
__device__ __forceinline__ Bits bits_of(T x) {
  Bits bits;
  static_assert(sizeof(Bits) == sizeof(T), "all of an element");
  memcpy(&bits, &x, sizeof x);
  return bits;
}

/* Of floating-point numbers, by their bits and those of infinity. */
template <class Bits>
__device__ __forceinline__ Bits key_of_bits(Bits bits, Bits infinity) {
  constexpr Bits kSign = static_cast<Bits>(Bits(1) << (8 * sizeof(Bits) - 1));
  const Bits size = bits & static_cast<Bits>(~kSign);
  if (size > infinity) return static_cast<Bits>(~Bits(0));
  if (size == 0) return kSign;
  return static_cast<Bits>(bits & kSign ? ~bits : bits | kSign);
}

template <class T>
struct KeyOf {
  static constexpr bool kNumbersOnly = true;
  using type = unsigned;
  __device__ __forceinline__ static type of(T x) {
    return static_cast<unsigned>(static_cast<int>(x)) ^ 0x80000000u;
  }
};
template <>
struct KeyOf<unsigned> {
  static constexpr bool kNumbersOnly = true;
  using type = unsigned;
  __device__ __forceinline__ static type of(unsigned x) { return x; }
};
template <>
struct KeyOf<long> {
  static constexpr bool kNumbersOnly = true;
  using type = unsigned long long;
  __device__ __forceinline__ static type of(long x) {
    return static_cast<type>(x) ^ 0x8000000000000000ull;
  }
};
template <>
struct KeyOf<long long> : KeyOf<long> {};
#ifdef __CUDA_FP16_TYPES_EXIST__
template <>
struct KeyOf<half> {
  static constexpr bool kNumbersOnly = false;
  using type = unsigned short;
  __device__ __forceinline__ static type of(half x) {
    return key_of_bits<type>(bits_of<type>(x), 0x7c00);
  }
};
#endif
#ifdef __CUDA_BF16_TYPES_EXIST__
template <>
struct KeyOf<__nv_bfloat16> {
  static constexpr bool kNumbersOnly = false;
  using type = unsigned short;
  __device__ __forceinline__ static type of(__nv_bfloat16 x) {
    return key_of_bits<type>(bits_of<type>(x), 0x7f80);
  }
};
#endif
template <>
struct KeyOf<float> {
  static constexpr bool kNumbersOnly = false;
  using type = unsigned;
  __device__ __forceinline__ static type of(float x) {
    return key_of_bits<type>(bits_of<type>(x), 0x7f800000u);
  }
};
template <>
struct KeyOf<double> {
  static constexpr bool kNumbersOnly = false;
  using type = unsigned long long;
  __device__ __forceinline__ static type of(double x) {
    return key_of_bits<type>(bits_of<type>(x), 0x7ff0000000000000ull);
  }
};

/* A key and a place, in one number where that is wide enough. Of two that are equal the earlier
   comes first; behind all of them comes none. */
template <class Key>
struct Entry;
template <>
struct Entry<unsigned short> {
  unsigned bits;
  __device__ __forceinline__ static Entry of(unsigned short key, unsigned place) {
    return {static_cast<unsigned>(key) << 16 | place};
  }
  __device__ __forceinline__ static Entry none() { return {0xffffffffu}; }
  __device__ __forceinline__ unsigned short key() const { return bits >> 16; }
  __device__ __forceinline__ unsigned place() const { return bits & 0xffffu; }
  __device__ __forceinline__ bool operator<(Entry other) const { return bits < other.bits; }
};
template <>
struct Entry<unsigned> {
  unsigned long long bits;
  __device__ __forceinline__ static Entry of(unsigned key, unsigned place) {
    return {static_cast<unsigned long long>(key) << 32 | place};
  }
  __device__ __forceinline__ static Entry none() { return {0xffffffffffffffffull}; }
  __device__ __forceinline__ unsigned key() const { return bits >> 32; }
  __device__ __forceinline__ unsigned place() const { return static_cast<unsigned>(bits); }
  __device__ __forceinline__ bool operator<(Entry other) const { return bits < other.bits; }
};
template <>
struct Entry<unsigned long long> {
  unsigned long long bits;
  unsigned at;
  __device__ __forceinline__ static Entry of(unsigned long long key, unsigned place) {
    return {key, place};
  }
  __device__ __forceinline__ static Entry none() { return {0xffffffffffffffffull, 0xffffffffu}; }
  __device__ __forceinline__ unsigned long long key() const { return bits; }
  __device__ __forceinline__ unsigned place() const { return at; }
  __device__ __forceinline__ bool operator<(Entry other) const {
    return bits < other.bits || (bits == other.bits && at < other.at);
  }
};

/* Keys of 16 bits leave no more than as many for places: not enough where lines are long. */
template <class Key, bool kLong>
struct EntryKey {
  using type = Key;
};
template <>
struct EntryKey<unsigned short, true> {
  using type = unsigned;
};
template <class X, bool kLong = false>
using EntryOf = Entry<typename EntryKey<typename KeyOf<X>::type, kLong>::type>;

template <bool kDescending, class E, class X>
__device__ __forceinline__ E entry(X x, unsigned place) {
  using Key = typename KeyOf<X>::type;
  const Key key = KeyOf<X>::of(x);
  return E::of(kDescending ? static_cast<Key>(~key) : key, place);
}

}  // namespace collage
#endif
