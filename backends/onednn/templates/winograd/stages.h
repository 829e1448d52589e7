// The two stages of a batch of tiles, in each namespace of lanes: pictures to points, then products
// and back. Both are shared by threads in pieces that do not depend on each other.

// Channels `from` to `to` of one tile of the batch that starts at tile `first`.
template <class T>
COLLAGE_LANES inline void take_to_points(const Work& w, int64_t first, int64_t tile, int64_t from,
                                         int64_t to) {
  const int64_t channels = w.shape.channels;
  for (int64_t c = from; c < to; c += kLanes)
    picture_to_points<T>(w.from, w.shape, w.tiles[first + tile], w.x + w.from.channel(c),
                         w.points + tile * channels + c, w.apart);
}

// Tiles `begin` to `end` of a batch that starts at tile `first`, for a block of the result's
// channels; `sums` holds these tiles of one block.
template <class T, int vectors>
COLLAGE_LANES inline void multiply_block(const Work& w, int64_t first, int64_t begin, int64_t end,
                                         int64_t group, int64_t channel, const float* weights,
                                         float* sums) {
  constexpr int64_t points = T::kPoints * T::kPoints;
  const int64_t depth = w.shape.channels / w.shape.groups, count = end - begin;
  const float* x = w.points + begin * w.shape.channels + group * depth;
  for (int64_t p = 0; p < points; ++p)
    multiply_point<vectors>(count, x + p * w.apart, w.shape.channels,
                            weights + p * depth * vectors * kLanes, depth,
                            sums + p * count * kBlock);
  for (int64_t tile = 0; tile < count; ++tile)
    for (int i = 0; i < vectors; ++i) {
      const int64_t c = channel + i * kLanes;
      points_to_results<T>(w.to, w.shape, w.tiles[first + begin + tile],
                           sums + tile * kBlock + i * kLanes, count * kBlock,
                           w.bias ? w.bias + c : nullptr, w.following, w.to.channel(c), w.y);
    }
}

// A piece of the second stage: of a batch's tiles, and of the result's channels.
template <class T>
COLLAGE_LANES inline void multiply_piece(const Work& w, int64_t first, int64_t begin, int64_t end,
                                         int64_t block, float* sums) {
  constexpr int64_t points = T::kPoints * T::kPoints;
  const int64_t made = w.shape.made / w.shape.groups, depth = w.shape.channels / w.shape.groups;
  const int64_t blocks = (made + kBlock - 1) / kBlock;
  const int64_t group = block / blocks, place = block % blocks * kBlock;
  const float* weights = w.weights + points * depth * (group * made + place);
  if (made - place > kLanes)
    multiply_block<T, 2>(w, first, begin, end, group, group * made + place, weights, sums);
  else
    multiply_block<T, 1>(w, first, begin, end, group, group * made + place, weights, sums);
}

// What the driver needs to know of a kind of tile.
template <class T>
struct Kernels {
  static constexpr int64_t kVector = kLanes, kColumns = kBlock, kRows = kMostRows;
  static constexpr int64_t kPoints = T::kPoints, kResults = T::kResults;
  static void take(const Work& w, int64_t first, int64_t tile, int64_t from, int64_t to) {
    take_to_points<T>(w, first, tile, from, to);
  }
  static void multiply(const Work& w, int64_t first, int64_t begin, int64_t end, int64_t block,
                       float* sums) {
    multiply_piece<T>(w, first, begin, end, block, sums);
  }
};
