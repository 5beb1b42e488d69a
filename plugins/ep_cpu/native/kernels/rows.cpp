// Normalisation, Softmax and reductions over rows and columns; transposition.
#include "functions.h"
#include "parts.h"

namespace ep::EP_LEVEL {
namespace {

/// Applies `function` to all vectors of a row; lanes beyond its end are `neutral`.
template <class Function>
EP_INLINE void over(const float *x, int64_t width, float neutral, Function function) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes)
    function(load(x + i));
  if (i == width)
    return;
  float lanes[kLanes];
  for (int lane = 0; lane < kLanes; ++lane)
    lanes[lane] = i + lane < width ? x[i + lane] : neutral;
  function(load(lanes));
}

/// Sums in four strands, for the processor's sake and the error's.
template <class Function>
EP_INLINE float sum_over(const float *x, int64_t width, float neutral, Function function) {
  Vec sums[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= width; i += 4 * kLanes)
    EP_UNROLL
    for (int j = 0; j < 4; ++j)
      sums[j] += function(load(x + i + j * kLanes));
  over(x + i, width - i, neutral, [&](Vec value) { sums[0] += function(value); });
  return sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

template <class Function>
EP_INLINE void map_row(const float *x, float *out, int64_t width, Function function) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes)
    store(out + i, function(load(x + i), i, kLanes));
  if (i < width) {
    const int rest = static_cast<int>(width - i);
    store_part(out + i, function(load_part(x + i, rest), i, rest), rest);
  }
}

EP_INLINE Vec load_some(const float *from, int count) {
  return count == kLanes ? load(from) : load_part(from, count);
}

EP_INLINE float largest_in(const float *x, int64_t width) {
  Vec most = broadcast(-__builtin_inff());
  over(x, width, -__builtin_inff(), [&](Vec value) { most = larger(most, value); });
  return largest_of(most);
}

float reduce_row(const float *x, int64_t width, int kind) {
  const float count = static_cast<float>(width);
  switch (kind) {
  case 0: return sum_over(x, width, 0.0f, [](Vec v) { return v; });
  case 1: return sum_over(x, width, 0.0f, [](Vec v) { return v; }) / count;
  case 2: return largest_in(x, width);
  case 3: {
    Vec most = broadcast(-__builtin_inff());
    over(x, width, __builtin_inff(), [&](Vec value) { most = larger(most, -value); });
    return -largest_of(most);
  }
  case 4: return sum_over(x, width, 0.0f, [](Vec v) { return v * v; });
  default: return sum_over(x, width, 0.0f, [](Vec v) { return absolute(v); });
  }
}

EP_INLINE Vec combine(Vec so_far, Vec value, int kind) {
  switch (kind) {
  case 2: return larger(so_far, value);
  case 3: return smaller(so_far, value);
  case 4: return so_far + value * value;
  case 5: return so_far + absolute(value);
  default: return so_far + value;
  }
}

} // namespace

void normalise(const float *x, const float *scale, const float *bias, float *out, int64_t rows,
               int64_t width, float epsilon, bool centred) {
  const float share = 1.0f / static_cast<float>(width);
  for (int64_t row = 0; row < rows; ++row, x += width, out += width) {
    const float mean =
        centred ? sum_over(x, width, 0.0f, [](Vec v) { return v; }) * share : 0.0f;
    const float variance = sum_over(x, width, mean, [&](Vec v) {
                             const Vec distance = v - mean;
                             return distance * distance;
                           }) * share;
    const float factor = 1.0f / __builtin_sqrtf(variance + epsilon);
    map_row(x, out, width, [&](Vec v, int64_t i, int count) {
      const Vec scaled = (v - mean) * factor * load_some(scale + i, count);
      return bias == nullptr ? scaled : scaled + load_some(bias + i, count);
    });
  }
}

void softmax(const float *x, float *out, int64_t rows, int64_t width, bool logarithm_wanted) {
  for (int64_t row = 0; row < rows; ++row, x += width, out += width) {
    const float top = largest_in(x, width);
    if (logarithm_wanted) {
      const float sum =
          sum_over(x, width, -__builtin_inff(), [&](Vec v) { return exponential(v - top); });
      const float log_sum = logarithm(broadcast(sum))[0];
      map_row(x, out, width, [&](Vec v, int64_t, int) { return (v - top) - log_sum; });
      continue;
    }
    map_row(x, out, width, [&](Vec v, int64_t, int) { return exponential(v - top); });
    const float factor = 1.0f / sum_over(out, width, 0.0f, [](Vec v) { return v; });
    map_row(out, out, width, [&](Vec v, int64_t, int) { return v * factor; });
  }
}

void reduce_rows(const float *x, float *out, int64_t rows, int64_t width, int kind) {
  for (int64_t row = 0; row < rows; ++row)
    out[row] = reduce_row(x + row * width, width, kind);
}

void reduce_columns(const float *x, float *out, int64_t rows, int64_t width, int64_t begin,
                    int64_t end, int kind) {
  const float start = kind == 2 ? -__builtin_inff() : kind == 3 ? __builtin_inff() : 0.0f;
  const float share = kind == 1 ? 1.0f / static_cast<float>(rows) : 1.0f;
  for (int64_t column = begin; column < end; column += kLanes) {
    const int64_t left = end - column;
    const int count = left < kLanes ? static_cast<int>(left) : kLanes;
    Vec so_far = broadcast(start);
    for (int64_t row = 0; row < rows; ++row)
      so_far = combine(so_far, load_some(x + row * width + column, count), kind);
    store_part(out + column, kind == 1 ? so_far * share : so_far, count);
  }
}

void transpose(const float *x, int64_t x_step, float *out, int64_t out_step, int64_t begin,
               int64_t end, int64_t columns) {
  constexpr int64_t kSide = 16; // one line of the cache
  for (int64_t row = begin; row < end; row += kSide)
    for (int64_t column = 0; column < columns; column += kSide) {
      const int64_t last_row = row + kSide < end ? row + kSide : end;
      const int64_t last_column = column + kSide < columns ? column + kSide : columns;
      for (int64_t j = column; j < last_column; ++j)
        for (int64_t i = row; i < last_row; ++i)
          out[j * out_step + i] = x[i * x_step + j];
    }
}

} // namespace ep::EP_LEVEL
