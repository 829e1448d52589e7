// The exponential function, in each namespace of lanes.

// x as n times the logarithm of 2 and a rest between its halves.
struct Halvings {
  Lanes n, rest;
};

// Down to -104, where the exponential function is 0 as rounded, and up to 89, where it is infinite,
// if `unbounded`; NaN of NaN.
template <bool unbounded>
COLLAGE_LANES inline Halvings halvings(Lanes x) {
  // The second operand is what comes out where one is NaN.
  x = larger(all(-104.f), x);
  if (unbounded) x = smaller(all(89.f), x);
  const Lanes n = nearest_whole(mul(x, all(1.44269504f)));
  // The logarithm of 2 in two parts, the first of which has few digits.
  Lanes r = fnma(n, all(0.693359375f), x);
  return {n, fnma(n, all(-2.12194440e-4f), r)};
}

// exp(r) - 1 of a rest, by the polynomial of Cephes' expf.
COLLAGE_LANES inline Lanes power_of_rest_less_one(Lanes r) {
  Lanes p = all(1.9875691500e-4f);
  for (float next : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                     5.0000001201e-1f})
    p = fma(p, r, all(next));
  return fma(p, mul(r, r), r);
}

// To a unit in the last place or so.
template <bool unbounded = false>
COLLAGE_LANES inline Lanes exponential(Lanes x) {
  const Halvings of = halvings<unbounded>(x);
  const Lanes power = add(power_of_rest_less_one(of.rest), all(1.f));
  return scaled(power, of.n);
}

// exp(x) - 1 with all of its digits near 0, too.
COLLAGE_LANES inline Lanes exponential_less_one(Lanes x) {
  const Halvings of = halvings<true>(x);
  const Lanes one = all(1.f);
  return add(scaled(power_of_rest_less_one(of.rest), of.n), sub(scaled(one, of.n), one));
}
