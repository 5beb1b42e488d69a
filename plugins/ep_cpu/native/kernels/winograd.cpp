// Convolutions of 3 x 3 by Winograd's method: both ends of it; the products between are `gemm`'s.
//
// A tile of Out x Out places needs (Out + 2)^2 inputs. Seen through polynomials that are evaluated
// at some points, the convolution of a tile is one product of numbers per point instead of nine per
// place. The points are 0, a, -a, b, -b and infinity, for 2 x 2 places without b. Far from 1 they
// make numbers of very different sizes and lose digits: 3/4 and 3/2 give a quarter of the error of
// the usual 1 and 2. All factors below are exact in binary.
#include "parts.h"
#include "simd.h"

namespace ep::EP_LEVEL {
namespace {

constexpr float kNear = 0.75f;
constexpr float kFar = 1.5f;
constexpr float kNear2 = kNear * kNear;
constexpr float kFar2 = kFar * kFar;

/// Values at the points, of the six or four numbers at `in[0], in[Step], ...`.
template <int Points, int Step> EP_INLINE void spread_line(const Vec *in, Vec *out) {
  if constexpr (Points == 6) {
    const Vec even_near = in[4 * Step] - kFar2 * in[2 * Step];
    const Vec odd_near = kNear * (in[3 * Step] - kFar2 * in[Step]);
    const Vec even_far = in[4 * Step] - kNear2 * in[2 * Step];
    const Vec odd_far = kFar * (in[3 * Step] - kNear2 * in[Step]);
    out[0] = kNear2 * kFar2 * in[0] - (kNear2 + kFar2) * in[2 * Step] + in[4 * Step];
    out[Step] = even_near + odd_near;
    out[2 * Step] = even_near - odd_near;
    out[3 * Step] = even_far + odd_far;
    out[4 * Step] = even_far - odd_far;
    out[5 * Step] = kNear2 * kFar2 * in[Step] - (kNear2 + kFar2) * in[3 * Step] + in[5 * Step];
  } else {
    out[0] = in[0] - in[2 * Step];
    out[Step] = in[2 * Step] + in[Step];
    out[2 * Step] = in[2 * Step] - in[Step];
    out[3 * Step] = in[3 * Step] - in[Step];
  }
}

/// Four or two places out of the values at the points.
template <int Points, int Step> EP_INLINE void gather_line(const Vec *in, Vec *out) {
  if constexpr (Points == 6) {
    const Vec sum_near = in[Step] + in[2 * Step];
    const Vec gap_near = kNear * (in[Step] - in[2 * Step]);
    const Vec sum_far = in[3 * Step] + in[4 * Step];
    const Vec gap_far = kFar * (in[3 * Step] - in[4 * Step]);
    out[0] = in[0] + sum_near + sum_far;
    out[Step] = gap_near + gap_far;
    out[2 * Step] = kNear2 * sum_near + kFar2 * sum_far;
    out[3 * Step] = kNear2 * gap_near + kFar2 * gap_far + in[5 * Step];
  } else {
    out[0] = in[0] + in[Step] + in[2 * Step];
    out[Step] = in[Step] - in[2 * Step] + in[3 * Step];
  }
}

EP_INLINE Vec load_some(const float *from, int count) {
  return count == kLanes ? load(from) : load_part(from, count);
}

EP_INLINE int count_from(int64_t begin, int64_t end) {
  return end - begin < kLanes ? static_cast<int>(end - begin) : kLanes;
}

struct Place {
  int64_t picture, y, x; // of the first place of a tile, in the output
};

EP_INLINE Place place_of(const Winograd &w, int64_t tile) {
  const int64_t row = tile / w.tiles_x;
  return {row / w.tiles_y, row % w.tiles_y * w.side, tile % w.tiles_x * w.side};
}

template <int Points>
void spread(const Winograd &w, const float *input, int64_t begin, int64_t end, float *to) {
  for (int64_t tile = begin; tile < end; ++tile, to += w.channels) {
    const Place place = place_of(w, tile);
    const float *picture = input + place.picture * w.height * w.width * w.channels;
    const float *sources[Points * Points];
    for (int i = 0; i < Points; ++i)
      for (int j = 0; j < Points; ++j) {
        const int64_t y = place.y - w.top + i;
        const int64_t x = place.x - w.left + j;
        const bool is_inside = y >= 0 && y < w.height && x >= 0 && x < w.width;
        sources[i * Points + j] =
            is_inside ? picture + (y * w.width + x) * w.channels : nullptr;
      }
    for (int64_t channel = 0; channel < w.channels; channel += kLanes) {
      const int count = count_from(channel, w.channels);
      Vec lines[Points * Points];
#pragma GCC unroll 6
      for (int j = 0; j < Points; ++j) {
        Vec column[Points];
#pragma GCC unroll 6
        for (int i = 0; i < Points; ++i) {
          const float *from = sources[i * Points + j];
          column[i] = from == nullptr ? Vec{} : load_some(from + channel, count);
        }
        Vec done[Points];
        spread_line<Points, 1>(column, done);
#pragma GCC unroll 6
        for (int i = 0; i < Points; ++i)
          lines[i * Points + j] = done[i];
      }
#pragma GCC unroll 6
      for (int i = 0; i < Points; ++i) {
        Vec done[Points];
        spread_line<Points, 1>(lines + i * Points, done);
#pragma GCC unroll 6
        for (int j = 0; j < Points; ++j) {
          float *target = to + (i * Points + j) * w.spread_step + channel;
          if (count == kLanes)
            store(target, done[j]);
          else
            store_part(target, done[j], count);
        }
      }
    }
  }
}

template <int Points>
void gather(const Winograd &w, const float *products, const float *bias, float low, float high,
            float *out, int64_t begin, int64_t end, int64_t column, int64_t width) {
  constexpr int kSide = Points - 2;
  const Vec least = broadcast(low);
  const Vec most = broadcast(high);
  for (int64_t tile = begin; tile < end; ++tile, products += width) {
    const Place place = place_of(w, tile);
    const int64_t left_y = w.out_height - place.y;
    const int64_t left_x = w.out_width - place.x;
    const int rows = left_y < kSide ? static_cast<int>(left_y) : kSide;
    const int columns = left_x < kSide ? static_cast<int>(left_x) : kSide;
    float *target = out + column +
                    ((place.picture * w.out_height + place.y) * w.out_width + place.x) *
                        w.out_channels;
    for (int64_t channel = 0; channel < width; channel += kLanes) {
      const int count = count_from(channel, width);
      const Vec start = bias == nullptr ? Vec{} : load_some(bias + column + channel, count);
      Vec lines[kSide * Points];
#pragma GCC unroll 6
      for (int j = 0; j < Points; ++j) {
        Vec points[Points];
#pragma GCC unroll 6
        for (int i = 0; i < Points; ++i)
          points[i] = load_some(products + (i * Points + j) * w.gather_step + channel, count);
        Vec done[kSide];
        gather_line<Points, 1>(points, done);
#pragma GCC unroll 6
        for (int i = 0; i < kSide; ++i)
          lines[i * Points + j] = done[i];
      }
      for (int i = 0; i < rows; ++i) {
        Vec done[kSide];
        gather_line<Points, 1>(lines + i * Points, done);
        float *line = target + i * w.out_width * w.out_channels + channel;
#pragma GCC unroll 6
        for (int j = 0; j < kSide; ++j)
          if (j < columns)
            store_part(line + j * w.out_channels, clamp(done[j] + start, least, most), count);
      }
    }
  }
}

} // namespace

void winograd_spread(const Winograd &w, const float *input, int64_t begin, int64_t end,
                     float *to) {
  (w.side == 4 ? spread<6> : spread<4>)(w, input, begin, end, to);
}

void winograd_gather(const Winograd &w, const float *products, const float *bias, float low,
                     float high, float *out, int64_t begin, int64_t end, int64_t column,
                     int64_t width) {
  (w.side == 4 ? gather<6> : gather<4>)(w, products, bias, low, high, out, begin, end, column,
                                        width);
}

void winograd_weights(const float *filter, int64_t side, double *points) {
  constexpr double near = kNear;
  constexpr double far = kFar;
  constexpr double n = 2 * near * near * (near * near - far * far);
  constexpr double f = 2 * far * far * (far * far - near * near);
  constexpr double z = near * near * far * far;
  constexpr double for_four[6][3] = {{1 / z, 0, 0},
                                     {1 / n, near / n, near * near / n},
                                     {1 / n, -near / n, near * near / n},
                                     {1 / f, far / f, far * far / f},
                                     {1 / f, -far / f, far * far / f},
                                     {0, 0, 1}};
  constexpr double for_two[4][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
  const double(*rows)[3] = side == 4 ? for_four : for_two;
  const int count = static_cast<int>(side) + 2;
  for (int i = 0; i < count; ++i)
    for (int j = 0; j < count; ++j) {
      double sum = 0;
      for (int y = 0; y < 3; ++y)
        for (int x = 0; x < 3; ++x)
          sum += rows[i][y] * rows[j][x] * filter[y * 3 + x];
      points[i * count + j] = sum;
    }
}

} // namespace ep::EP_LEVEL
