// Products of 8-bit integers with a packed second operand, and what leads to them and back.
//
// B is packed in panels as for the float products. Four elements of a column lie in one lane, so that
// a lane holds the sum over four steps of k. A is taken as unsigned and B as signed, the others are
// shifted by 128 into that. All sums are exact, modulo 2^32.
#include "kernels.h"
#include "simd.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

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
constexpr int64_t kLine = 64;
constexpr int64_t kMostRows = 160; // whose sums are kept

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
typedef int8_t ByteVec __attribute__((vector_size(kLanes)));
typedef uint8_t WideByteVec __attribute__((vector_size(kLanes)));
typedef int8_t LooseBytes __attribute__((vector_size(kLanes), aligned(1), may_alias));
typedef uint8_t LooseWideBytes __attribute__((vector_size(kLanes), aligned(1), may_alias));

using LooseInts = VectorTypes<kLanes>::LooseInt;

EP_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

EP_INLINE int64_t words_of(int64_t depth) { return (depth + kWord - 1) / kWord; }

EP_INLINE int vectors_of(int64_t columns) {
  return static_cast<int>((columns + kLanes - 1) / kLanes);
}

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

// ---------------------------------------------------------------- one tile

struct Tile {
  const uint8_t *const *a; // one pointer per row and tap
  int64_t a_row;           // pointers from a row to the next
  int64_t taps, depth;
  const int8_t *b;
  const int8_t *ahead; // from here on one line is fetched per word of k
  int32_t *sums;       // a panel's width per row
};

template <int Rows, int Vectors, bool Flips> void compute_tile(const Tile &tile) {
  // Unknown to the compiler, else it would flip words before it spreads them, which takes longer.
  WrappingVec flip = repeated(0x80808080u);
  if constexpr (Flips)
    asm("" : EP_ANY_VECTOR(flip));
  const auto spread = [&](uint32_t word) __attribute__((always_inline)) {
    WrappingVec value = repeated(word);
    if constexpr (Flips)
      value ^= flip;
    else
      asm("" : EP_ANY_VECTOR(value)); // else sums would leave their registers
    return left_of(value);
  };
  WrappingVec sums[Rows][Vectors];
  EP_UNROLL
  for (int i = 0; i < Rows; ++i)
    EP_UNROLL
    for (int j = 0; j < Vectors; ++j)
      sums[i][j] = WrappingVec{};
  const int8_t *b = tile.b;
  const int8_t *ahead = tile.ahead;
  for (int64_t tap = 0; tap < tile.taps; ++tap) {
    // As in the float products: registers are for sums.
    asm volatile("" ::: "memory");
    const int64_t whole = tile.depth / kWord * kWord;
    const uint8_t *a[Rows];
    for (int i = 0; i < Rows; ++i)
      a[i] = tile.a[i * tile.a_row + tap] + whole;
    for (int64_t k = -whole; k != 0; k += kWord) {
      Right right[Vectors];
      EP_UNROLL
      for (int j = 0; j < Vectors; ++j)
        right[j] = right_of(load_words(b + j * kLanes * kWord));
      __builtin_prefetch(ahead, 0, 2);
      ahead += kLine;
      EP_UNROLL
      for (int i = 0; i < Rows; ++i) {
        const Left left = spread(load_word(a[i] + k));
        EP_UNROLL
        for (int j = 0; j < Vectors; ++j)
          sums[i][j] = dot(sums[i][j], left, right[j]);
      }
      b += Vectors * kLanes * kWord;
    }
    if (whole != tile.depth)
      b += Vectors * kLanes * kWord; // for add_rests
  }
  asm volatile("" ::: "memory");
  EP_UNROLL
  for (int i = 0; i < Rows; ++i)
    EP_UNROLL
    for (int j = 0; j < Vectors; ++j)
      *reinterpret_cast<LooseInts *>(tile.sums + i * kColumns + j * kLanes) =
          reinterpret_cast<IntVec>(sums[i][j]);
}

/// Adds what is left of pieces that aren't whole words. Apart from the tile, whose sums would leave
/// their registers for it.
template <bool Flips> void add_rests(const Tile &tile, int rows, int vectors) {
  const uint32_t flip = Flips ? 0x80808080u : 0;
  const int64_t whole = tile.depth / kWord;
  for (int i = 0; i < rows; ++i)
    for (int64_t tap = 0; tap < tile.taps; ++tap) {
      const uint8_t *from = tile.a[i * tile.a_row + tap] + whole * kWord;
      const Left left = left_of(repeated(load_rest(from, tile.depth - whole * kWord) ^ flip));
      const int8_t *b = tile.b + (tap * (whole + 1) + whole) * vectors * kLanes * kWord;
      for (int j = 0; j < vectors; ++j) {
        auto *sum = reinterpret_cast<LooseInts *>(tile.sums + i * kColumns + j * kLanes);
        *sum = reinterpret_cast<IntVec>(dot(reinterpret_cast<WrappingVec>(IntVec(*sum)), left,
                                            right_of(load_words(b + j * kLanes * kWord))));
      }
    }
}

using ComputeTile = void (*)(const Tile &);

template <int Vectors, bool Flips> ComputeTile tile_of(int rows) {
  static_assert(kRows <= 6);
  switch (rows) {
  case 1: return compute_tile<1, Vectors, Flips>;
  case 2: return compute_tile<2, Vectors, Flips>;
  case 3: return compute_tile<3, Vectors, Flips>;
  case 4: return compute_tile<4, Vectors, Flips>;
  case 5: return compute_tile<kRows < 5 ? kRows : 5, Vectors, Flips>;
  default: return compute_tile<kRows, Vectors, Flips>;
  }
}

template <bool Flips> ComputeTile tile_of(int rows, int vectors) {
  switch (vectors) {
  case 1: return tile_of<1, Flips>(rows);
  case 2: return tile_of<2, Flips>(rows);
  case 3: return tile_of<kWidth < 3 ? kWidth : 3, Flips>(rows);
  default: return tile_of<kWidth, Flips>(rows);
  }
}

// ---------------------------------------------------------------- what follows on it

EP_INLINE IntVec nearest(Vec value) {
#if defined(__AVX512F__)
  return reinterpret_cast<IntVec>(_mm512_cvtps_epi32(reinterpret_cast<__m512>(value)));
#elif defined(__AVX2__)
  return reinterpret_cast<IntVec>(_mm256_cvtps_epi32(reinterpret_cast<__m256>(value)));
#elif defined(__SSE2__)
  return reinterpret_cast<IntVec>(_mm_cvtps_epi32(reinterpret_cast<__m128>(value)));
#else
  return to_int(round_even(value));
#endif
}

/// The low bytes of all lanes.
EP_INLINE void store_bytes(uint8_t *to, IntVec value) {
  const ByteVec bytes = __builtin_convertvector(value, ByteVec);
  __builtin_memcpy(to, &bytes, sizeof(bytes));
}

EP_INLINE void store_bytes(uint8_t *to, IntVec value, int count) {
  if (count == kLanes) {
    store_bytes(to, value);
    return;
  }
  for (int i = 0; i < count; ++i)
    to[i] = static_cast<uint8_t>(value[i]);
}

EP_INLINE IntVec load_bytes(const uint8_t *from, bool is_signed) {
#if defined(__AVX512F__)
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from));
  return reinterpret_cast<IntVec>(is_signed ? _mm512_cvtepi8_epi32(bytes)
                                            : _mm512_cvtepu8_epi32(bytes));
#elif defined(__AVX2__)
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(from));
  return reinterpret_cast<IntVec>(is_signed ? _mm256_cvtepi8_epi32(bytes)
                                            : _mm256_cvtepu8_epi32(bytes));
#else
  if (is_signed)
    return __builtin_convertvector(
        static_cast<ByteVec>(*reinterpret_cast<const LooseBytes *>(from)), IntVec);
  return __builtin_convertvector(
      static_cast<WideByteVec>(*reinterpret_cast<const LooseWideBytes *>(from)), IntVec);
#endif
}

EP_INLINE IntVec load_bytes(const uint8_t *from, bool is_signed, int count) {
  if (count == kLanes)
    return load_bytes(from, is_signed);
  uint8_t bytes[kLanes] = {};
  for (int i = 0; i < count; ++i)
    bytes[i] = from[i];
  return load_bytes(bytes, is_signed);
}

EP_INLINE WrappingVec load_integers(const int32_t *from, int count) {
  WrappingVec value = {};
  if (count == kLanes)
    __builtin_memcpy(&value, from, sizeof(value));
  else
    for (int i = 0; i < count; ++i)
      value[i] = static_cast<uint32_t>(from[i]);
  return value;
}

EP_INLINE Vec load_floats(const float *from, int count) {
  return count == kLanes ? load(from) : load_part(from, count);
}

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

int32_t sum_of_row(const IntegerGemm &g, int64_t row) {
  const bool by_taps = g.rows != nullptr;
  const int64_t taps = by_taps ? g.taps : 1;
  const int64_t depth = by_taps ? g.depth : g.k;
  uint32_t sum = 0;
  for (int64_t tap = 0; tap < taps; ++tap) {
    const uint8_t *from =
        by_taps ? g.rows[(row - g.first_row) * g.taps + tap] : g.a + row * g.a_step;
    uint32_t part = 0;
    if (g.flips)
      for (int64_t k = 0; k < depth; ++k)
        part += from[k] ^ 128u;
    else
      for (int64_t k = 0; k < depth; ++k)
        part += from[k];
    sum += part;
  }
  return static_cast<int32_t>(sum);
}

/// One panel for all rows of a block.
void compute_panel(const IntegerGemm &g, const int32_t *row_sums, int64_t row_begin,
                   int64_t row_end, int64_t panel) {
  const int64_t column = panel * kColumns;
  const int64_t width = least(kColumns, g.n - column);
  const int vectors = vectors_of(width);
  const bool by_taps = g.rows != nullptr;
  const auto find = [&](int rows) {
    return g.flips ? tile_of<true>(rows, vectors) : tile_of<false>(rows, vectors);
  };
  const ComputeTile full = find(kRows);
  alignas(64) int32_t sums[kRows * kColumns];
  const uint8_t *rows[kRows];
  Tile tile;
  tile.a_row = by_taps ? g.taps : 1;
  tile.taps = by_taps ? g.taps : 1;
  tile.depth = by_taps ? g.depth : g.k;
  const int64_t words = tile.taps * words_of(tile.depth);
  tile.b = g.packed + column * words * kWord;
  tile.sums = sums;
  const int64_t bytes = words * vectors * kLanes * kWord;
  const int8_t *ahead = tile.b + bytes;
  // Tiles of about the same size: a small one at the end would wait for its panel.
  const int64_t whole = row_end - row_begin;
  const int64_t tiles = (whole + kRows - 1) / kRows;
  for (int64_t number = 0; number < tiles; ++number) {
    const int64_t row = row_begin + whole * number / tiles;
    const int count = static_cast<int>(row_begin + whole * (number + 1) / tiles - row);
    if (by_taps) {
      tile.a = g.rows + (row - g.first_row) * g.taps;
    } else {
      for (int i = 0; i < count; ++i)
        rows[i] = g.a + (row + i) * g.a_step;
      tile.a = rows;
    }
    // The first tiles fetch the panel behind this one, a part each; the others what is there.
    tile.ahead = ahead < tile.b + 2 * bytes ? ahead : tile.b;
    ahead += words * kLine;
    (count == kRows ? full : find(count))(tile);
    if (tile.depth % kWord != 0)
      (g.flips ? add_rests<true> : add_rests<false>)(tile, count, vectors);
    finish_tile(g, sums, row_sums + (row - row_begin), row, count, column, width);
  }
}

int64_t packed_bytes(int64_t taps, int64_t depth, int64_t n) {
  return taps * words_of(depth) * kWord * vectors_of(n) * kLanes;
}

void pack_bytes(const uint8_t *b, int64_t row_step, int64_t column_step, int64_t taps,
                int64_t depth, int64_t n, bool flips, int8_t *packed, int32_t *sums, int64_t begin,
                int64_t end) {
  const uint8_t flip = flips ? 128 : 0;
  const int64_t words = words_of(depth);
  for (int64_t panel = begin; panel < end; ++panel) {
    const int64_t column = panel * kColumns;
    const int64_t width = least(kColumns, n - column);
    const int64_t padded = vectors_of(width) * kLanes;
    int8_t *to = packed + column * taps * words * kWord;
    for (int64_t j = 0; j < padded; ++j) {
      int32_t sum = 0;
      for (int64_t tap = 0; tap < taps; ++tap)
        for (int64_t k = 0; k < words * kWord; ++k) {
          const bool is_inside = k < depth && j < width;
          const int64_t row = tap * depth + k;
          const auto value = static_cast<int8_t>(
              is_inside ? b[row * row_step + (column + j) * column_step] ^ flip : 0);
          to[((tap * words + k / kWord) * padded + j) * kWord + k % kWord] = value;
          sum += value;
        }
      if (j < width)
        sums[column + j] = sum;
    }
  }
}

void gemm_bytes(const IntegerGemm &g, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end) {
  int32_t row_sums[kMostRows];
  for (int64_t begin = row_begin; begin < row_end; begin += kMostRows) {
    const int64_t end = least(begin + kMostRows, row_end);
    if (g.zeros != nullptr)
      for (int64_t row = begin; row < end; ++row)
        row_sums[row - begin] = sum_of_row(g, row);
    for (int64_t panel = panel_begin; panel < panel_end; ++panel)
      compute_panel(g, row_sums, begin, end, panel);
  }
  if (g.chain == nullptr)
    return;
  const int64_t column = panel_begin * kColumns;
  const int64_t width = least(panel_end * kColumns, g.n) - column;
  Matrix operands[kMostOperands];
  float *c = static_cast<float *>(g.c) + row_begin * g.c_step + column;
  operands[0] = {c, g.c_step, 1};
  for (int i = 1; i < g.chain->inputs; ++i) {
    operands[i] = g.operands[i];
    operands[i].data += row_begin * operands[i].row_step + column * operands[i].column_step;
  }
  g.elementwise(*g.chain, operands, c, g.c_step, row_end - row_begin, width);
}

// ---------------------------------------------------------------- to 8 bits and back

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

void add_bytes(const uint8_t *a, const uint8_t *b, uint8_t *out, int64_t count, bool a_signed,
               bool b_signed, float a_factor, float b_factor, float offset, float low, float high,
               int32_t zero) {
  const auto add = a_signed ? (b_signed ? add_some<true, true> : add_some<true, false>)
                            : (b_signed ? add_some<false, true> : add_some<false, false>);
  add(a, b, out, count, a_factor, b_factor, offset, low, high, zero);
}

} // namespace

extern const IntegerKernels kIntegerKernels;
const IntegerKernels kIntegerKernels = {
    kRows,        static_cast<int>(kColumns),
    packed_bytes, pack_bytes, gemm_bytes, quantise, dequantise, unpack_nibbles, bounds, add_bytes,
};

} // namespace ep::EP_LEVEL
