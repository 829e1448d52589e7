// Chains of elementwise operators, row by row, in each namespace of lanes: see vectors.h.

COLLAGE_LANES inline Lanes linked(const Link& link, Lanes x, Lanes y) {
  switch (link.what) {
    case Link::add: return add(x, y);
    case Link::sub: return sub(x, y);
    case Link::mul: return mul(x, y);
    case Link::div: return div(x, y);
    case Link::max: return larger(x, y);
    case Link::min: return smaller(x, y);
    case Link::slopes: return choose(above(x, all(0.f)), x, mul(x, y));
    case Link::relu: return larger(all(0.f), x);
    case Link::leaky: return choose(above(x, all(0.f)), x, mul(x, all(link.alpha)));
    case Link::clip: return smaller(all(link.beta), larger(all(link.alpha), x));
    case Link::linear: return fma(x, all(link.alpha), all(link.beta));
    case Link::logistic: return Logistic::of(x, y);
    case Link::swish: return Swish::of(x, all(link.alpha));
    case Link::gelu_erf: return GeluErf::of(x, y);
    case Link::gelu_tanh: return GeluTanh::of(x, y);
    case Link::tanh: return Tanh::of(x, y);
    default: return x;
  }
}

// The same of several vectors: what it is is asked once.
template <int count>
COLLAGE_LANES inline void linked_all(const Link& link, Lanes* x, const Lanes* y) {
#define COLLAGE_EACH(result)                                       \
  for (int i = 0; i < count; ++i) x[i] = result;                   \
  break
  switch (link.what) {
    case Link::add: COLLAGE_EACH(add(x[i], y[i]));
    case Link::mul: COLLAGE_EACH(mul(x[i], y[i]));
    case Link::relu: COLLAGE_EACH(larger(all(0.f), x[i]));
    default: COLLAGE_EACH(linked(link, x[i], y[i]));
  }
#undef COLLAGE_EACH
}

// A vector of `left` numbers or more, of which `whole` ones are read and written without a mask.
template <bool whole>
COLLAGE_LANES inline Lanes part_of(const float* x, int64_t left) {
  return whole ? load(x) : load_first(x, left, all(0.f));
}

// `columns` numbers of a row from `column` on, which fill `count` vectors.
template <int count, bool whole, class Given, class Store>
COLLAGE_LANES inline void links_of(const Chain& chain, int64_t row, int64_t column,
                                   int64_t columns) {
  Lanes x[count], y[count];
  const int64_t from = row * chain.pitch + column;
  for (int i = 0; i < count; ++i)
    x[i] = Given::template part<whole>(chain, from + i * kLanes, columns - i * kLanes);
  for (const Link& link : chain.links) {
    const float* operand = link.y + row * link.pitch + (link.by_column ? column : 0);
    for (int i = 0; i < count; ++i)
      y[i] = link.by_column ? part_of<whole>(operand + i * kLanes, columns - i * kLanes)
                            : all(link.y ? *operand : 0.f);
    linked_all<count>(link, x, y);
  }
  for (int i = 0; i < count; ++i)
    Store::template part<whole>(chain, row * chain.width + column + i * kLanes,
                                columns - i * kLanes, x[i]);
}

template <class Given, class Store>
COLLAGE_LANES inline void chained(const Chain& chain, int64_t first, int64_t last) {
  constexpr int together = 4;
  for (int64_t row = first; row < last; ++row) {
    int64_t column = 0;
    for (; column + together * kLanes <= chain.width; column += together * kLanes)
      links_of<together, true, Given, Store>(chain, row, column, together * kLanes);
    for (; column + kLanes <= chain.width; column += kLanes)
      links_of<1, true, Given, Store>(chain, row, column, kLanes);
    if (column < chain.width)
      links_of<1, false, Given, Store>(chain, row, column, chain.width - column);
  }
}

struct Floats {
  template <bool whole>
  COLLAGE_LANES static Lanes part(const Chain& chain, int64_t place, int64_t left) {
    return part_of<whole>(static_cast<const float*>(chain.x) + place, left);
  }
};

struct Exact {
  template <bool whole>
  COLLAGE_LANES static void part(const Chain& chain, int64_t place, int64_t left, Lanes a) {
    float* const to = static_cast<float*>(chain.result) + place;
    if (whole) store(to, a);
    else store_first(to, left, a);
  }
};

void chained_rows(const Chain& chain, int64_t first, int64_t last) {
  chained<Floats, Exact>(chain, first, last);
}
