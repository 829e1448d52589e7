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

// `columns` numbers of a row from `column` on, which fill `count` vectors; the last may be a part.
template <int count, class Store>
COLLAGE_LANES inline void links_of(const Chain& chain, int64_t row, int64_t column,
                                   int64_t columns) {
  Lanes x[count];
  const float* from = chain.x + row * chain.pitch + column;
  for (int i = 0; i < count; ++i)
    x[i] = load_first(from + i * kLanes, columns - i * kLanes, all(0.f));
  for (const Link& link : chain.links) {
    const float* operand = link.y + row * link.pitch + (link.by_column ? column : 0);
    for (int i = 0; i < count; ++i) {
      Lanes y = all(0.f);
      if (link.by_column) y = load_first(operand + i * kLanes, columns - i * kLanes, y);
      else if (link.y) y = all(*operand);
      x[i] = linked(link, x[i], y);
    }
  }
  for (int i = 0; i < count; ++i)
    Store::first(chain, row * chain.width + column + i * kLanes, columns - i * kLanes, x[i]);
}

template <class Store>
COLLAGE_LANES inline void chained(const Chain& chain, int64_t first, int64_t last) {
  constexpr int together = 4;
  for (int64_t row = first; row < last; ++row) {
    int64_t column = 0;
    for (; column + together * kLanes <= chain.width; column += together * kLanes)
      links_of<together, Store>(chain, row, column, together * kLanes);
    for (; column < chain.width; column += kLanes)
      links_of<1, Store>(chain, row, column, chain.width - column);
  }
}

struct Exact {
  COLLAGE_LANES static void first(const Chain& chain, int64_t place, int64_t count, Lanes a) {
    store_first(static_cast<float*>(chain.result) + place, count, a);
  }
};

void chained_rows(const Chain& chain, int64_t first, int64_t last) {
  chained<Exact>(chain, first, last);
}
