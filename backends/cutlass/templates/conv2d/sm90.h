/* Hopper's forward convolutions: the copy engine gathers pixels (im2col). Config as in
 * hopper/tile.h, without Operands; a step is 64 channels of one of the filter's places. */
#ifndef COLLAGE_CONV2D_SM90_H_
#define COLLAGE_CONV2D_SM90_H_

#include "conv2d/problem.h"
#include "hopper/maps.h"
#include "hopper/tile.h"
#include "hopper/turns.h"

namespace collage {

template <class Config>
struct Conv2dSm90 {
  using Element = typename Config::Element;
  static_assert(Config::kDepth == 64 && Config::kDeepA && Config::kDeepB);

  struct Place {
    int n, h, w;   /* the tile's first pixel, as the filter's first place sees it */
    int c, at, r, s; /* channel, the filter's place, and its row and column */
  };

  struct Operands {
    CUtensorMap a, b;
    hopper::Divisor height, width;
    int top, left;
    int stride_h, stride_w, dilation_h, dilation_w;
    int channels, filter_width;

    __device__ void prefetch() const {
      hopper::prefetch(a);
      hopper::prefetch(b);
    }

    __device__ Place begin(int pixel) const {
      int row, n, p, q;
      width.divide(pixel, &row, &q);
      height.divide(row, &n, &p);
      return {n, p * stride_h - top, q * stride_w - left, 0, 0, 0, 0};
    }

    __device__ void next(Place& place) const {
      place.c += 64;
      if (place.c < channels) return;
      place.c = 0;
      ++place.at;
      if (++place.s < filter_width) return;
      place.s = 0;
      ++place.r;
    }

    __device__ void load_a(uint32_t to, uint32_t barrier, const Place& place, int, int) const {
      hopper::load_pixels(to, a, barrier, place.c, place.w, place.h, place.n,
                          static_cast<uint16_t>(place.s * dilation_w),
                          static_cast<uint16_t>(place.r * dilation_h));
    }

    __device__ void load_b(uint32_t to, uint32_t barrier, const Place& place, int column,
                           int) const {
      hopper::load(to, b, barrier, place.c, place.at, column);
    }
  };

  struct Whole : Config {
    using Operands = Conv2dSm90::Operands;
  };

  static int run(const collage_cutlass_call* call) {
    const Conv2dProblem problem(call->sizes);
    const Conv2dOperands operands(problem, call->inputs);
    hopper::Parameters<Operands> p{};
    Operands& own = p.operands;
    const hopper::Pixels pixels = {
        problem.n,
        problem.h,
        problem.w,
        problem.c,
        problem.top,
        problem.left,
        problem.below - (problem.r - 1) * problem.dilation_h,
        problem.right - (problem.s - 1) * problem.dilation_w,
        problem.stride_h,
        problem.stride_w,
    };
    cudaError_t error =
        hopper::describe<Element>(&own.a, operands.data, pixels, Config::kRows);
    if (error != cudaSuccess) return static_cast<int>(error);
    const int64_t places = int64_t{problem.r} * problem.s;
    error = hopper::describe<Element>(&own.b, operands.weights, {problem.c, places, problem.k},
                                      {problem.c, places * problem.c}, 1, Config::kColumns);
    if (error != cudaSuccess) return static_cast<int>(error);
    own.height = hopper::Divisor(problem.p);
    own.width = hopper::Divisor(problem.q);
    own.top = problem.top;
    own.left = problem.left;
    own.stride_h = problem.stride_h;
    own.stride_w = problem.stride_w;
    own.dilation_h = problem.dilation_h;
    own.dilation_w = problem.dilation_w;
    own.channels = problem.c;
    own.filter_width = problem.s;
    p.result = {call->output,      operands.bias,
                operands.residual, problem.n * problem.p * problem.q,
                problem.k,         0,
                problem.epilogue};
    p.steps = static_cast<int>(places) * ((problem.c + 63) / 64);
    return hopper::launch_tiles<Whole>(p, 1, call);
  }

  static size_t workspace(const int64_t*) { return 0; }
};

}  // namespace collage

#endif /* COLLAGE_CONV2D_SM90_H_ */
