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

void depthwise(const Window &w, const float *input, const float *weights, const float *bias,
               float low, float high, float *out, int64_t begin, int64_t end) {
  const Vec least = broadcast(low);
  const Vec most = broadcast(high);
  over_places(w, begin, end, [&](int64_t to, Range rows, Range columns, int64_t y, int64_t x) {
    for (int64_t channel = 0; channel < w.channels; channel += kLanes) {
      const int64_t left = w.channels - channel;
      const int count = left < kLanes ? static_cast<int>(left) : kLanes;
      Vec sum = bias == nullptr ? Vec{} : load_some(bias + channel, count);
      over_taps(w, rows, columns, y, x, [&](int64_t from, int64_t tap) {
        sum += load_some(input + from + channel, count) *
               load_some(weights + tap * w.channels + channel, count);
      });
      store_part(out + to + channel, clamp(sum, least, most), count);
    }
  });
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
