// Between 8-bit integers and floats, and sums of quantised tensors.
#include "bytes.h"

namespace ep::EP_LEVEL {

void quantise(const float *x, uint8_t *out, int64_t count, float scale, float zero, float low,
              float high) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const int part = static_cast<int>(least(kLanes, count - i));
    const Vec value = round_even(load_floats(x + i, part) / scale) + zero;
    store_bytes(out + i, to_int(clamp(value, broadcast(low), broadcast(high))), part);
  }
}

void dequantise(const uint8_t *x, bool is_signed, float *out, int64_t count, float scale,
                float zero) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const int part = static_cast<int>(least(kLanes, count - i));
    const Vec value = to_float(load_bytes(x + i, is_signed, part));
    store_part(out + i, (value - zero) * scale, part);
  }
}

void unpack_nibbles(const uint8_t *codes, const float *scales, const float *zeros, int64_t k,
                    int64_t block, int64_t columns, float *out) {
  for (int64_t begin = 0; begin < k; begin += block, scales += columns, zeros += columns)
    for (int64_t row = begin; row < least(begin + block, k); row += 2, codes += columns)
      for (int64_t column = 0; column < columns; column += kLanes) {
        const IntVec both = load_bytes(codes + column, false);
        const Vec scale = load(scales + column);
        const Vec zero = load(zeros + column);
        float *to = out + row * columns + column;
        store(to, (to_float(both & 15) - zero) * scale);
        if (row + 1 < k)
          store(to + columns, (to_float(both >> 4) - zero) * scale);
      }
}

void bounds(const float *x, int64_t count, float *smallest, float *largest) {
  Vec low = broadcast(__builtin_inff());
  Vec high = broadcast(-__builtin_inff());
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Vec value = load(x + i);
    low = smaller(low, value);
    high = larger(high, value);
  }
  float least_lane = -largest_of(-low);
  float most_lane = largest_of(high);
  for (; i < count; ++i) {
    least_lane = (x[i] < least_lane || x[i] != x[i]) ? x[i] : least_lane;
    most_lane = (x[i] > most_lane || x[i] != x[i]) ? x[i] : most_lane;
  }
  *smallest = least_lane;
  *largest = most_lane;
}

namespace {

template <bool ASigned, bool BSigned>
void add_some(const uint8_t *a, const uint8_t *b, uint8_t *out, int64_t count, float a_factor,
              float b_factor, float offset, float low, float high, int32_t zero) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const int part = static_cast<int>(least(kLanes, count - i));
    const Vec left = to_float(load_bytes(a + i, ASigned, part));
    const Vec right = to_float(load_bytes(b + i, BSigned, part));
    const Vec value = left * a_factor + (right * b_factor + offset);
    store_bytes(out + i, nearest(clamp(value, broadcast(low), broadcast(high))) + zero, part);
  }
}

} // namespace

void add_bytes(const uint8_t *a, const uint8_t *b, uint8_t *out, int64_t count, bool a_signed,
               bool b_signed, float a_factor, float b_factor, float offset, float low, float high,
               int32_t zero) {
  const auto add = a_signed ? (b_signed ? add_some<true, true> : add_some<true, false>)
                            : (b_signed ? add_some<false, true> : add_some<false, false>);
  add(a, b, out, count, a_factor, b_factor, offset, low, high, zero);
}

} // namespace ep::EP_LEVEL
