// Elementwise functions, in each namespace of lanes. With AVX-512 the library's kernels take 1.4 to
// 2.5 times as long alone, and more behind a product, where they are applied to a few vectors at a
// time; its ELU, Mish and softplus are less exact.

struct Logistic {
  COLLAGE_LANES static Lanes of(Lanes x, Lanes) {
    const Lanes one = all(1.f);
    const Lanes power = exponential<true>(sub(all(0.f), x));
    return div(one, add(one, power));
  }
};

struct Swish {
  COLLAGE_LANES static Lanes of(Lanes x, Lanes alpha) {
    const Lanes power = exponential<true>(fnma(alpha, x, all(0.f)));
    return div(x, add(all(1.f), power));
  }
};

// (1 + tanh(u)) / 2 is the logistic function of 2u.
struct GeluTanh {
  COLLAGE_LANES static Lanes of(Lanes x, Lanes) {
    constexpr float c = -2.f * 0.797884561f;  // the root of 2 / pi
    const Lanes factor =
        fma(mul(x, x), all(c * 0.044715f), all(c));
    const Lanes power = exponential<true>(mul(x, factor));
    return div(x, add(all(1.f), power));
  }
};

// The error function as Eigen's: a quotient of polynomials, which is 1 to the last digit at 4.
struct GeluErf {
  COLLAGE_LANES static Lanes of(Lanes x, Lanes) {
    Lanes z = mul(x, all(0.707106781f));
    z = smaller(all(4.f), larger(all(-4.f), z));
    const Lanes square = mul(z, z);
    Lanes p = all(-2.72614225801306e-10f);
    for (float next : {2.77068142495902e-08f, -2.10102402082508e-06f, -5.69250639462346e-05f,
                       -7.34990630326855e-04f, -2.95459980854025e-03f, -1.60960333262415e-02f})
      p = fma(p, square, all(next));
    Lanes q = all(-1.45660718464996e-05f);
    for (float next : {-2.13374055278905e-04f, -1.68282697438203e-03f, -7.37332916720468e-03f,
                       -1.42647390514189e-02f})
      q = fma(q, square, all(next));
    const Lanes erf = div(mul(z, p), q);
    const Lanes half = mul(x, all(0.5f));
    return fma(half, erf, half);
  }
};

struct Exponential {
  COLLAGE_LANES static Lanes of(Lanes x, Lanes) { return exponential<true>(x); }
};

// As Cephes' logf, a polynomial around 1: the library's is off by 6e-7 where the result is near 0.
struct Logarithm {
  COLLAGE_LANES static Lanes of(Lanes x, Lanes) {
    const Lanes one = all(1.f);
    Lanes m = mantissa(x);
    Lanes e = exponent(x);
    const Which upper = above(m, all(1.41421356f));
    m = choose(upper, mul(m, all(0.5f)), m);
    e = choose(upper, add(e, one), e);
    const Lanes f = sub(m, one), square = mul(f, f);
    Lanes p = all(7.0376836292e-2f);
    for (float next : {-1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
                       -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f})
      p = fma(p, f, all(next));
    Lanes y = mul(mul(p, f), square);
    y = fma(e, all(-2.12194440e-4f), y);
    y = fnma(square, all(0.5f), y);
    y = fma(e, all(0.693359375f), add(f, y));
    const Lanes most = all(__builtin_inff()), none = all(0.f);
    y = choose(same(x, most), most, y);
    return choose(same(x, none), sub(none, most), y);
  }
};

// tanh of |x| is -t / (t + 2) of t = exp(-2 |x|) - 1, whose digits are all there near 0.
struct Tanh {
  COLLAGE_LANES static Lanes of(Lanes x, Lanes) {
    const Lanes two = all(2.f);
    const Lanes t = exponential_less_one(mul(size(x), all(-2.f)));
    const Lanes below = div(t, add(t, two));
    const Which positive = above(x, all(0.f));
    return choose(positive, sub(all(0.f), below), below);
  }
};

// log(1 + exp(a x)) / a; log(1 + e) is twice the inverse hyperbolic tangent of e / (2 + e).
struct SoftRelu {
  COLLAGE_LANES static Lanes of(Lanes x, Lanes alpha) {
    const Lanes y = mul(alpha, x), two = all(2.f);
    const Lanes e = exponential(sub(all(0.f), size(y)));
    const Lanes z = div(e, add(e, two)), square = mul(z, z);
    Lanes p = all(2.f / 17.f);
    for (float next : {2.f / 15.f, 2.f / 13.f, 2.f / 11.f, 2.f / 9.f, 2.f / 7.f, 2.f / 5.f,
                       2.f / 3.f, 2.f})
      p = fma(p, square, all(next));
    const Lanes above = larger(all(0.f), y);
    return div(fma(p, z, above), alpha);
  }
};

// tanh(log(1 + e)) is n / (n + 2) of n = e (e + 2), which is 1 long before x is 30.
struct Mish {
  COLLAGE_LANES static Lanes of(Lanes x, Lanes) {
    const Lanes two = all(2.f);
    const Lanes e = exponential(smaller(all(30.f), x));
    const Lanes n = mul(e, add(e, two));
    return mul(x, div(n, add(n, two)));
  }
};

struct Elu {
  COLLAGE_LANES static Lanes of(Lanes x, Lanes alpha) {
    const Lanes below = mul(alpha, exponential_less_one(x));
    const Which positive = above(x, all(0.f));
    return choose(positive, x, below);
  }
};

template <class F>
COLLAGE_LANES inline void apply_to_vectors(const float* x, float* y, int64_t count, float alpha) {
  const Lanes parameter = all(alpha);
  int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    const Lanes a = F::of(load(x + i), parameter);
    const Lanes b = F::of(load(x + i + kLanes), parameter);
    store(y + i, a);
    store(y + i + kLanes, b);
  }
  for (; i + kLanes <= count; i += kLanes) store(y + i, F::of(load(x + i), parameter));
  if (i < count)
    store_first(y + i, count - i, F::of(load_first(x + i, count - i, all(0.f)), parameter));
}

// None where the library's kernel is as fast or more exact.
VectorFunction vector_function(dnnl_alg_kind_t algorithm) {
  switch (algorithm) {
    case dnnl_eltwise_logistic: return apply_to_vectors<Logistic>;
    case dnnl_eltwise_swish: return apply_to_vectors<Swish>;
    case dnnl_eltwise_gelu_tanh: return apply_to_vectors<GeluTanh>;
    case dnnl_eltwise_gelu_erf: return apply_to_vectors<GeluErf>;
    case dnnl_eltwise_exp: return apply_to_vectors<Exponential>;
    case dnnl_eltwise_log: return apply_to_vectors<Logarithm>;
    case dnnl_eltwise_tanh: return apply_to_vectors<Tanh>;
    case dnnl_eltwise_soft_relu: return apply_to_vectors<SoftRelu>;
    case dnnl_eltwise_mish: return apply_to_vectors<Mish>;
    case dnnl_eltwise_elu: return apply_to_vectors<Elu>;
    default: return nullptr;
  }
}
