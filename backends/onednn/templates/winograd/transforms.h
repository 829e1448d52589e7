// How a tile is taken to Winograd's points and back, along one axis, in each namespace of lanes. A
// tile of m + r - 1 pixels gives m results of r taps with m + r - 1 products in place of r m: it is
// evaluated as a polynomial at m + r - 2 points and at infinity. Lavin and Gray, "Fast Algorithms
// for Convolutional Neural Networks" (2016), section 4; matrices from Cook and Toom's construction.

#define COLLAGE_WITHIN COLLAGE_LANES __attribute__((always_inline)) inline

// An axis with one tap.
struct One {
  static constexpr int kTaps = 1, kResults = 1, kPoints = 1;
  COLLAGE_WITHIN static void to_points(const Lanes (&d)[1], Lanes (&v)[1]) { v[0] = d[0]; }
  COLLAGE_WITHIN static void to_results(const Lanes (&m)[1], Lanes (&y)[1]) { y[0] = m[0]; }
};

// Points 0, 1, -1: rounds less than adding nine products per channel does.
struct Two {
  static constexpr int kTaps = 3, kResults = 2, kPoints = 4;

  COLLAGE_WITHIN static void to_points(const Lanes (&d)[4], Lanes (&v)[4]) {
    v[0] = sub(d[0], d[2]);
    v[1] = add(d[1], d[2]);
    v[2] = sub(d[2], d[1]);
    v[3] = sub(d[3], d[1]);
  }

  COLLAGE_WITHIN static void to_results(const Lanes (&m)[4], Lanes (&y)[2]) {
    y[0] = add(add(m[0], m[1]), m[2]);
    y[1] = add(sub(m[1], m[2]), m[3]);
  }
};

// Points 0, 5/8, -5/8, 3/2, -3/2: of those whose powers are exact in a few digits these round
// least, half as much as 0, 1, -1, 2, -2.
struct Four {
  static constexpr int kTaps = 3, kResults = 4, kPoints = 6;

  COLLAGE_WITHIN static void to_points(const Lanes (&d)[6], Lanes (&v)[6]) {
    const Lanes a = all(kNear), b = all(kFar), a2 = all(kNear * kNear), b2 = all(kFar * kFar);
    const Lanes both = all(kNear * kNear * kFar * kFar), sum = all(kNear * kNear + kFar * kFar);
    v[0] = fma(both, d[0], fnma(sum, d[2], d[4]));
    const Lanes near_even = fnma(b2, d[2], d[4]), near_odd = mul(a, fnma(b2, d[1], d[3]));
    v[1] = add(near_even, near_odd);
    v[2] = sub(near_even, near_odd);
    const Lanes far_even = fnma(a2, d[2], d[4]), far_odd = mul(b, fnma(a2, d[1], d[3]));
    v[3] = add(far_even, far_odd);
    v[4] = sub(far_even, far_odd);
    v[5] = fma(both, d[1], fnma(sum, d[3], d[5]));
  }

  COLLAGE_WITHIN static void to_results(const Lanes (&m)[6], Lanes (&y)[4]) {
    const Lanes a = all(kNear), b = all(kFar), a2 = all(kNear * kNear), b2 = all(kFar * kFar);
    const Lanes near_sum = add(m[1], m[2]), near_difference = sub(m[1], m[2]);
    const Lanes far_sum = add(m[3], m[4]), far_difference = sub(m[3], m[4]);
    y[0] = add(m[0], add(near_sum, far_sum));
    y[1] = fma(a, near_difference, mul(b, far_difference));
    y[2] = fma(a2, near_sum, mul(b2, far_sum));
    y[3] = fma(mul(a, a2), near_difference, fma(mul(b, b2), far_difference, m[5]));
  }
};

// Two results of five taps at the same points. Four of them would be off by three times as much as
// sums of products are.
struct TwoOfFive {
  static constexpr int kTaps = 5, kResults = 2, kPoints = 6;

  COLLAGE_WITHIN static void to_points(const Lanes (&d)[6], Lanes (&v)[6]) {
    Four::to_points(d, v);
  }

  COLLAGE_WITHIN static void to_results(const Lanes (&m)[6], Lanes (&y)[2]) {
    y[0] = add(m[0], add(add(m[1], m[2]), add(m[3], m[4])));
    y[1] = fma(all(kNear), sub(m[1], m[2]), fma(all(kFar), sub(m[3], m[4]), m[5]));
  }
};
