// The two stages of a batch, in each namespace of lanes: pictures to points, then products and
// back. Both are shared by threads in pieces that do not depend on each other.

// Channels `from` to `to` of one tile of a plane that the batch reads.
template <class R, class C>
COLLAGE_LANES inline void take_to_points(const Work& w, const Batch& batch, int64_t slot,
                                         int64_t tile, int64_t from, int64_t to) {
  const int64_t channels = w.shape.channels;
  const int64_t plane =
      batch.plane * w.shape.planes.step + w.reading->offsets[static_cast<size_t>(slot)];
  if (plane < 0 || plane >= w.shape.planes.read) return;
  float* points = w.points + (slot * batch.tiles + tile) * channels;
  const Tile& place = w.tiles[batch.tile + tile];
  for (int64_t c = from; c < to;) {
    const int64_t block = c / w.from.width, end = std::min(to, (block + 1) * w.from.width);
    const float* x = w.x + w.from.channel(c);
    for (; c < end; c += kLanes, x += kLanes)
      picture_to_points<R, C>(w.from, w.shape, place, plane, x, points + c, w.apart);
  }
}

// Products of one point with all taps along planes, for rows `begin` to `end` of a batch.
template <int vectors>
COLLAGE_LANES COLLAGE_ONCE inline void multiply_taps(const Work& w, const Batch& batch, int64_t begin,
                                        int64_t end, const float* points, const float* weights,
                                        int64_t depth, float* sums) {
  const int64_t channels = w.shape.channels, taps = w.shape.planes.taps;
  bool adds = false;
  for (int64_t tap = 0; tap < taps; ++tap) {
    const Range seen = planes_seen(w.shape.planes, batch, tap);
    const int64_t first = std::max(begin, seen.begin * batch.tiles);
    const int64_t last = std::min(end, seen.end * batch.tiles);
    if (!adds && (first > begin || last < end)) {
      for (int64_t i = 0; i < (end - begin) * kBlock; i += kLanes) store(sums + i, all(0.f));
      adds = true;
    }
    if (first < last)
      multiply_point<vectors>(
          last - first,
          points + (w.reading->firsts[static_cast<size_t>(tap)] * batch.tiles + first) * channels,
          channels, weights + tap * depth * vectors * kLanes, depth,
          sums + (first - begin) * kBlock, adds);
    adds = true;
  }
}

// Rows `begin` to `end` of a batch, for a block of the result's channels; `sums` holds these rows
// of one block.
template <class R, class C, int vectors>
COLLAGE_LANES inline void multiply_block(const Work& w, const Batch& batch, int64_t begin,
                                         int64_t end, int64_t group, int64_t channel,
                                         const float* weights, float* sums) {
  constexpr int64_t points = R::kPoints * C::kPoints;
  const int64_t depth = w.shape.channels / w.shape.groups, count = end - begin;
  for (int64_t p = 0; p < points; ++p)
    multiply_taps<vectors>(w, batch, begin, end, w.points + p * w.apart + group * depth,
                           weights + p * w.shape.planes.taps * depth * vectors * kLanes, depth,
                           sums + p * count * kBlock);
  int64_t channels[vectors], tile = begin % batch.tiles, plane = begin / batch.tiles;
  for (int i = 0; i < vectors; ++i) channels[i] = w.to.channel(channel + i * kLanes);
  for (int64_t row = 0; row < count; ++row) {
    for (int i = 0; i < vectors; ++i)
      points_to_results<R, C>(w.to, w.shape, w.tiles[batch.tile + tile], batch.plane + plane,
                              sums + row * kBlock + i * kLanes, count * kBlock,
                              w.bias ? w.bias + channel + i * kLanes : nullptr, w.following,
                              channels[i], w.y);
    if (++tile < batch.tiles) continue;
    tile = 0;
    ++plane;
  }
}

// A piece of the second stage: of a batch's rows, and of the result's channels.
template <class R, class C>
COLLAGE_LANES inline void multiply_piece(const Work& w, const Batch& batch, int64_t begin,
                                         int64_t end, int64_t block, float* sums) {
  const int64_t points = R::kPoints * C::kPoints * w.shape.planes.taps;
  const int64_t made = w.shape.made / w.shape.groups, depth = w.shape.channels / w.shape.groups;
  const int64_t blocks = (made + kBlock - 1) / kBlock;
  const int64_t group = block / blocks, place = block % blocks * kBlock;
  const float* weights = w.weights + points * depth * (group * made + place);
  if (made - place > kLanes)
    multiply_block<R, C, 2>(w, batch, begin, end, group, group * made + place, weights, sums);
  else
    multiply_block<R, C, 1>(w, batch, begin, end, group, group * made + place, weights, sums);
}

// What the driver needs to know of a kind of tile.
template <class R, class C>
inline constexpr Kernels kernels_of_tiles = {
    {R::kTaps, R::kResults, R::kPoints}, {C::kTaps, C::kResults, C::kPoints},
    kLanes, kBlock, kMostRows, pack_weights<kBlock>, take_to_points<R, C>, multiply_piece<R, C>};

const Kernels& kernels_of(const Shape& s, int64_t rows) {
  const int64_t down = s.taps[0], right = s.taps[1];
  if (down == 1) return right == 3 ? kernels_of_tiles<One, Four> : kernels_of_tiles<One, TwoOfFive>;
  if (right == 1) return down == 3 ? kernels_of_tiles<Four, One> : kernels_of_tiles<TwoOfFive, One>;
  if (down == 5) return kernels_of_tiles<TwoOfFive, TwoOfFive>;
  return rows == 2 ? kernels_of_tiles<Two, Two> : kernels_of_tiles<Four, Four>;
}
