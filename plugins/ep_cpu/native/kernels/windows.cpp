// Depthwise convolution and pooling, with channels innermost.
#include "parts.h"
#include "simd.h"

namespace ep::EP_LEVEL {
namespace {

struct Range {
  int64_t begin, end;
};

/// The taps of a window that lie inside, for a window that begins at `start`.
EP_INLINE Range inside(int64_t start, int64_t taps, int64_t dilation, int64_t length) {
  Range found = {0, taps};
  if (start < 0)
    found.begin = (-start + dilation - 1) / dilation;
  const int64_t reach = length - start; // taps below reach / dilation are inside
  const int64_t most = reach <= 0 ? 0 : (reach + dilation - 1) / dilation;
  if (most < found.end)
    found.end = most;
  if (found.begin > found.end)
    found.begin = found.end;
  return found;
}

EP_INLINE Vec load_some(const float *from, int count) {
  return count == kLanes ? load(from) : load_part(from, count);
}

/// Calls `function(out index, window's rows, columns, y, x)` for each place of some output rows.
template <class Function>
EP_INLINE void over_places(const Window &w, int64_t begin, int64_t end, Function function) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t y = row * w.stride_y - w.top;
    const Range rows = inside(y, w.kernel_height, w.dilation_y, w.height);
    for (int64_t column = 0; column < w.out_width; ++column) {
      const int64_t x = column * w.stride_x - w.left;
      const Range columns = inside(x, w.kernel_width, w.dilation_x, w.width);
      function((row * w.out_width + column) * w.channels, rows, columns, y, x);
    }
  }
}

/// Calls `function(offset of the input's channels, number of the tap)` for the taps inside.
template <class Function>
EP_INLINE void over_taps(const Window &w, Range rows, Range columns, int64_t y, int64_t x,
                         Function function) {
  for (int64_t i = rows.begin; i < rows.end; ++i)
    for (int64_t j = columns.begin; j < columns.end; ++j) {
      const int64_t place = (y + i * w.dilation_y) * w.width + x + j * w.dilation_x;
      function(place * w.channels, i * w.kernel_width + j);
    }
}

} // namespace

namespace {

constexpr int kNeighbours = 4; // places of a row that share each weight while it is in a register

struct Filters {
  const float *weights, *bias;
  Vec least, most;
};

/// `Count` neighbours of a row, all of whose windows have the same taps inside.
template <int Count>
EP_INLINE void filter_places(const Window &w, const Filters &filters, const float *input,
                             float *out, Range rows, Range columns, int64_t y, int64_t x) {
  const int64_t next = w.stride_x * w.channels;
  for (int64_t channel = 0; channel < w.channels; channel += kLanes) {
    const int64_t left = w.channels - channel;
    const int count = left < kLanes ? static_cast<int>(left) : kLanes;
    const Vec start =
        filters.bias == nullptr ? Vec{} : load_some(filters.bias + channel, count);
    Vec sums[Count];
    for (int i = 0; i < Count; ++i)
      sums[i] = start;
    over_taps(w, rows, columns, y, x, [&](int64_t from, int64_t tap) {
      const float *weights = filters.weights + tap * w.channels + channel;
      const float *source = input + from + channel;
      if (count == kLanes) {
        const Vec weight = load(weights);
        for (int i = 0; i < Count; ++i)
          sums[i] += load(source + i * next) * weight;
      } else {
        const Vec weight = load_part(weights, count);
        for (int i = 0; i < Count; ++i)
          sums[i] += load_part(source + i * next, count) * weight;
      }
    });
    for (int i = 0; i < Count; ++i)
      store_part(out + i * w.channels + channel, clamp(sums[i], filters.least, filters.most),
                 count);
  }
}

} // namespace

void depthwise(const Window &w, const float *input, const float *weights, const float *bias,
               float low, float high, float *out, int64_t begin, int64_t end) {
  const Filters filters = {weights, bias, broadcast(low), broadcast(high)};
  const int64_t reach = (w.kernel_width - 1) * w.dilation_x;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t y = row * w.stride_y - w.top;
    const Range rows = inside(y, w.kernel_height, w.dilation_y, w.height);
    for (int64_t column = 0; column < w.out_width;) {
      const int64_t x = column * w.stride_x - w.left;
      float *to = out + (row * w.out_width + column) * w.channels;
      const int64_t last = x + (kNeighbours - 1) * w.stride_x;
      if (x >= 0 && column + kNeighbours <= w.out_width && last + reach < w.width) {
        filter_places<kNeighbours>(w, filters, input, to, rows, {0, w.kernel_width}, y, x);
        column += kNeighbours;
      } else {
        const Range columns = inside(x, w.kernel_width, w.dilation_x, w.width);
        filter_places<1>(w, filters, input, to, rows, columns, y, x);
        ++column;
      }
    }
  }
}

void pool(const Window &w, const float *input, float *out, int64_t begin, int64_t end,
          bool largest, bool count_padding) {
  const float area = static_cast<float>(w.kernel_height * w.kernel_width);
  over_places(w, begin, end, [&](int64_t to, Range rows, Range columns, int64_t y, int64_t x) {
    const float taps =
        static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
    const float share = 1.0f / (count_padding ? area : taps);
    for (int64_t channel = 0; channel < w.channels; channel += kLanes) {
      const int64_t left = w.channels - channel;
      const int count = left < kLanes ? static_cast<int>(left) : kLanes;
      Vec so_far = broadcast(largest ? -__builtin_inff() : 0.0f);
      over_taps(w, rows, columns, y, x, [&](int64_t from, int64_t) {
        const Vec value = load_some(input + from + channel, count);
        so_far = largest ? larger(so_far, value) : so_far + value;
      });
      store_part(out + to + channel, largest ? so_far : so_far * share, count);
    }
  });
}

} // namespace ep::EP_LEVEL
