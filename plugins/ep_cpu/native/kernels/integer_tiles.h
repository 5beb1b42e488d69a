// Parts of the products of 8-bit integers: sums over four steps of k, and what follows on a tile.
#pragma once

#include "bytes.h"

namespace ep::EP_LEVEL {
namespace {

#if defined(__AVX512F__)
#define EP_ANY_VECTOR(value) "+v"(value)
#elif defined(__SSE2__)
#define EP_ANY_VECTOR(value) "+x"(value)
#else
#define EP_ANY_VECTOR(value) "+w"(value)
#endif

constexpr int64_t kWord = 4; // elements of a lane

#if defined(__AVX512VNNI__)
constexpr int kRows = 6; // 24 sums of 32 registers
constexpr int kWidth = 4; // vectors of a panel
#elif defined(__AVX512F__)
constexpr int kRows = 6;
constexpr int kWidth = 3;
#else
constexpr int kRows = 4;
constexpr int kWidth = 2;
#endif
constexpr int64_t kColumns = kWidth * kLanes;

typedef int16_t ShortVec __attribute__((vector_size(kLanes * 4)));
typedef uint16_t WideShortVec __attribute__((vector_size(kLanes * 4)));

// ---------------------------------------------------------------- sums over four steps

#if defined(__AVX512VNNI__)

using Left = WrappingVec;
using Right = WrappingVec;

EP_INLINE Left left_of(WrappingVec value) { return value; }
EP_INLINE Right right_of(WrappingVec value) { return value; }

/// Not by the intrinsic: GCC keeps copies of sums in memory then, written at every step.
EP_INLINE WrappingVec dot(WrappingVec sum, Left left, Right right) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(left), "v"(right));
  return sum;
}

#elif defined(__AVX512F__) || defined(__AVX2__) || defined(__SSE2__)

/// Elements 0 and 2, and 1 and 3, of all lanes as 16 bits: products of two and their sum fit into 32.
struct Halves {
  ShortVec even, odd;
};
using Left = Halves;
using Right = Halves;

EP_INLINE Left left_of(WrappingVec value) {
  const WideShortVec wide = reinterpret_cast<WideShortVec>(value);
  return {reinterpret_cast<ShortVec>(wide & 255), reinterpret_cast<ShortVec>(wide >> 8)};
}

EP_INLINE Right right_of(WrappingVec value) {
  const WideShortVec wide = reinterpret_cast<WideShortVec>(value);
  return {reinterpret_cast<ShortVec>(wide << 8) >> 8, reinterpret_cast<ShortVec>(value) >> 8};
}

EP_INLINE WrappingVec pairs(ShortVec a, ShortVec b) {
#if defined(__AVX512F__)
  return reinterpret_cast<WrappingVec>(
      _mm512_madd_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<WrappingVec>(
      _mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  return reinterpret_cast<WrappingVec>(
      _mm_madd_epi16(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#endif
}

EP_INLINE WrappingVec dot(WrappingVec sum, Left left, Right right) {
  return sum + (pairs(left.even, right.even) + pairs(left.odd, right.odd));
}

#else

using Left = WrappingVec;
using Right = WrappingVec;

EP_INLINE Left left_of(WrappingVec value) { return value; }
EP_INLINE Right right_of(WrappingVec value) { return value; }

EP_INLINE WrappingVec dot(WrappingVec sum, Left left, Right right) {
  EP_UNROLL
  for (int at = 0; at < 32; at += 8)
    sum += ((left >> at) & 255) *
           reinterpret_cast<WrappingVec>(reinterpret_cast<IntVec>(right << (24 - at)) >> 24);
  return sum;
}

#endif

EP_INLINE WrappingVec load_words(const int8_t *from) {
  WrappingVec value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}

EP_INLINE uint32_t load_word(const uint8_t *from) {
  uint32_t value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}

EP_INLINE WrappingVec repeated(uint32_t value) { return value - WrappingVec{}; }

/// 1 to 3 bytes, zeros behind: what follows there belongs to nobody, and counts nothing.
EP_INLINE uint32_t load_rest(const uint8_t *from, int64_t count) {
  uint32_t value = 0;
  for (int64_t i = 0; i < count; ++i)
    value |= uint32_t{from[i]} << (8 * i);
  return value;
}

// ---------------------------------------------------------------- what follows on it

/// Where a vector of a tile lies, and what belongs to its columns.
struct Columns {
  const IntegerGemm &g;
  const int32_t *sums; // in the tile, row by row
  const int32_t *row_sums;
  int64_t place; // of the first row in C
  int rows;
  WrappingVec starts, zeros;
  Vec scales, offsets;

  EP_INLINE IntVec sum(int row) const {
    WrappingVec whole = load_integers(sums + row * kColumns, kLanes) + starts;
    if (g.zeros != nullptr)
      whole -= zeros * static_cast<uint32_t>(row_sums[row]);
    return reinterpret_cast<IntVec>(whole);
  }
};

EP_INLINE void finish_integers(const Columns &columns, int count) {
  auto *to = static_cast<int32_t *>(columns.g.c) + columns.place;
  for (int i = 0; i < columns.rows; ++i, to += columns.g.c_step) {
    const IntVec sum = columns.sum(i);
    if (count == kLanes)
      *reinterpret_cast<LooseInts *>(to) = sum;
    else
      for (int lane = 0; lane < count; ++lane)
        to[lane] = sum[lane];
  }
}

EP_INLINE void finish_floats(const Columns &columns, int count) {
  const Vec low = broadcast(columns.g.low);
  const Vec high = broadcast(columns.g.high);
  auto *to = static_cast<float *>(columns.g.c) + columns.place;
  for (int i = 0; i < columns.rows; ++i, to += columns.g.c_step) {
    const Vec value = to_float(columns.sum(i)) * columns.scales + columns.offsets;
    if (count == kLanes)
      store(to, clamp(value, low, high));
    else
      store_part(to, clamp(value, low, high), count);
  }
}

EP_INLINE void finish_bytes(const Columns &columns, int count) {
  const IntegerGemm &g = columns.g;
  const Vec low = broadcast(g.low);
  const Vec high = broadcast(g.high);
  const IntVec zero = g.zero - IntVec{};
  auto *to = static_cast<uint8_t *>(g.c) + columns.place;
  for (int i = 0; i < columns.rows; ++i, to += g.c_step) {
    const Vec value = to_float(columns.sum(i)) * columns.scales + columns.offsets;
    store_bytes(to, nearest(clamp(value, low, high)) + zero, count);
  }
}

template <bool Signed> EP_INLINE void finish_sums_of_bytes(const Columns &columns, int count) {
  const IntegerGemm &g = columns.g;
  const Vec low = broadcast(g.low);
  const Vec high = broadcast(g.high);
  const Vec last_low = broadcast(g.last_low);
  const Vec last_high = broadcast(g.last_high);
  const IntVec zero = g.zero - IntVec{};
  auto *to = static_cast<uint8_t *>(g.c) + columns.place;
  const uint8_t *beside = g.beside + columns.place;
  for (int i = 0; i < columns.rows; ++i, to += g.c_step, beside += g.c_step) {
    const Vec value = to_float(columns.sum(i)) * columns.scales + columns.offsets;
    const Vec own = to_float(nearest(clamp(value, low, high)));
    const Vec other = to_float(load_bytes(beside, Signed, count));
    const Vec both = own * g.own_factor + (other * g.beside_factor + g.beside_offset);
    store_bytes(to, nearest(clamp(both, last_low, last_high)) + zero, count);
  }
}

EP_INLINE void finish_columns(const Columns &columns, int count) {
  const IntegerGemm &g = columns.g;
  if (g.result == IntegerGemm::kInteger)
    finish_integers(columns, count);
  else if (g.result == IntegerGemm::kFloat)
    finish_floats(columns, count);
  else if (g.beside == nullptr)
    finish_bytes(columns, count);
  else if (g.beside_signed)
    finish_sums_of_bytes<true>(columns, count);
  else
    finish_sums_of_bytes<false>(columns, count);
}

/// Writes rows [row, row + rows) of a panel that begins at `column`.
void finish_tile(const IntegerGemm &g, const int32_t *sums, const int32_t *row_sums, int64_t row,
                 int rows, int64_t column, int64_t width) {
  for (int64_t j = 0; j < width; j += kLanes) {
    const int count = static_cast<int>(least(kLanes, width - j));
    const int64_t at = column + j;
    Columns columns = {g,  sums + j, row_sums, row * g.c_step + at, rows, load_integers(g.starts + at, count),
                       {}, {},       {}};
    if (g.zeros != nullptr)
      columns.zeros = load_integers(g.zeros + at, count);
    if (g.result != IntegerGemm::kInteger) {
      columns.scales = load_floats(g.scales + at, count);
      if (g.offsets != nullptr)
        columns.offsets = load_floats(g.offsets + at, count);
    }
    if (count == kLanes)
      finish_columns(columns, kLanes);
    else
      finish_columns(columns, count);
  }
}

} // namespace
} // namespace ep::EP_LEVEL
