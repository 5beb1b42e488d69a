// Products of 8-bit integers with a packed second operand, and the table of all kernels for them.
//
// B is packed in panels as for the float products. Four elements of a column lie in one lane, so that
// a lane holds the sum over four steps of k. A is taken as unsigned and B as signed, the others are
// shifted by 128 into that. All sums are exact, modulo 2^32.
#include "integer_tiles.h"

namespace ep::EP_LEVEL {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kMostRows = 160; // whose sums are kept

EP_INLINE int64_t words_of(int64_t depth) { return (depth + kWord - 1) / kWord; }

EP_INLINE int vectors_of(int64_t columns) {
  return static_cast<int>((columns + kLanes - 1) / kLanes);
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

} // namespace

extern const IntegerKernels kIntegerKernels;
const IntegerKernels kIntegerKernels = {
    kRows,        static_cast<int>(kColumns),
    packed_bytes, pack_bytes, gemm_bytes, quantise, dequantise, unpack_nibbles, bounds, add_bytes,
};

} // namespace ep::EP_LEVEL
