// Products of matrices with a packed second operand; also attention, which is made of two.
//
// B is packed in panels of kPanel columns, the last one as narrow as whole vectors allow. A tile of
// C, some rows times one panel, stays in registers while k runs. The order of every sum depends on k
// alone: neither on threads nor on where a tile begins.
//
// With EP_PAIRS the same file makes products in bfloat16: a float then holds two numbers, which lie one
// behind the other along k.
#include "functions.h"
#include "gemm.h"
#include "parts.h"

#ifdef EP_PAIRS
namespace ep::EP_BASE {
void elementwise(const Chain &chain, const Matrix *operands, float *out, int64_t out_row_step,
                 int64_t rows, int64_t columns);
}
#else
#define EP_BASE EP_LEVEL
#endif

namespace ep::EP_LEVEL {
namespace {

/// Deeper products are cut into equal blocks, so that a block of a panel stays in the cache.
constexpr int64_t kMostDepth = 768;

constexpr int64_t kLine = 16; // floats of a line of the cache

#ifndef EP_PAIRS
EP_INLINE Vec multiply_add(Vec sum, Vec left, Vec right) { return sum + left * right; }
#elif defined(__AVX512BF16__)
EP_INLINE Vec multiply_add(Vec sum, Vec left, Vec right) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(left), "v"(right));
  return sum;
}
#else
EP_INLINE Vec first_of(Vec pair) { return from_bits(bits(pair) << 16); }
EP_INLINE Vec second_of(Vec pair) { return from_bits(bits(pair) & -65536); }

EP_INLINE Vec multiply_add(Vec sum, Vec left, Vec right) {
  return sum + first_of(left) * first_of(right) + second_of(left) * second_of(right);
}
#endif

EP_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

struct Tile {
  const float *const *a; // one pointer per row and tap
  int64_t a_row;         // pointers from a row to the next
  int64_t taps, depth;
  const float *b;
  const float *ahead; // from here on one line is fetched per step of k
  float *c;
  int64_t c_step;
  const float *bias; // null: start from 0
  bool goes_on;      // start from what C holds
  Vec low, high;
  int last; // columns of the last vector
};

template <int Rows, int Vectors> void compute_tile(const Tile &tile) {
  Vec sums[Rows][Vectors];
  if (tile.goes_on) {
    EP_UNROLL
    for (int i = 0; i < Rows; ++i)
      EP_UNROLL
      for (int j = 0; j < Vectors; ++j) {
        const float *from = tile.c + i * tile.c_step + j * kLanes;
        sums[i][j] = j + 1 < Vectors ? load(from) : load_part(from, tile.last);
      }
  } else {
    EP_UNROLL
    for (int j = 0; j < Vectors; ++j) {
      Vec start = {};
      if (tile.bias != nullptr)
        start = j + 1 < Vectors ? load(tile.bias + j * kLanes)
                                : load_part(tile.bias + j * kLanes, tile.last);
      EP_UNROLL
      for (int i = 0; i < Rows; ++i)
        sums[i][j] = start;
    }
  }
  const float *b = tile.b;
  const float *ahead = tile.ahead;
  for (int64_t tap = 0; tap < tile.taps; ++tap) {
    // What the tile says is read again at every tap and after the last: in registers it would take
    // the place of sums.
    asm volatile("" ::: "memory");
    const int64_t depth = tile.depth;
    const float *a[Rows];
    EP_UNROLL
    for (int i = 0; i < Rows; ++i)
      a[i] = tile.a[i * tile.a_row + tap] + depth;
    for (int64_t k = -depth; k != 0; ++k) {
      Vec right[Vectors];
      EP_UNROLL
      for (int j = 0; j < Vectors; ++j)
        right[j] = load(b + j * kLanes);
      __builtin_prefetch(ahead, 0, 2);
      ahead += kLine;
      EP_UNROLL
      for (int i = 0; i < Rows; ++i) {
        const Vec left = broadcast(a[i][k]);
        EP_UNROLL
        for (int j = 0; j < Vectors; ++j)
          sums[i][j] = multiply_add(sums[i][j], left, right[j]);
      }
      b += Vectors * kLanes;
    }
  }
  asm volatile("" ::: "memory");
  EP_UNROLL
  for (int i = 0; i < Rows; ++i)
    EP_UNROLL
    for (int j = 0; j < Vectors; ++j) {
      const Vec value = clamp(sums[i][j], tile.low, tile.high);
      float *to = tile.c + i * tile.c_step + j * kLanes;
      if (j + 1 < Vectors)
        store(to, value);
      else
        store_part(to, value, tile.last);
    }
}

using ComputeTile = void (*)(const Tile &);

template <int Vectors> ComputeTile tile_of(int rows) {
  static_assert(kTileRows <= 8);
  switch (rows) {
  case 1: return compute_tile<1, Vectors>;
  case 2: return compute_tile<2, Vectors>;
  case 3: return compute_tile<3, Vectors>;
  case 4: return compute_tile<4, Vectors>;
  case 5: return compute_tile<5, Vectors>;
  case 6: return compute_tile<6, Vectors>;
  case 7: return compute_tile<kTileRows < 7 ? kTileRows : 7, Vectors>;
  default: return compute_tile<kTileRows, Vectors>;
  }
}

ComputeTile tile_of(int rows, int vectors) {
  static_assert(kPanelVectors <= 3);
  switch (vectors) {
  case 1: return tile_of<1>(rows);
  case 2: return tile_of<2>(rows);
  default: return tile_of<kPanelVectors>(rows);
  }
}

EP_INLINE int vectors_of(int64_t columns) {
  return static_cast<int>((columns + kLanes - 1) / kLanes);
}

/// One block of depth of one panel, for all rows. `skipped` are floats of a row, or taps.
void compute_block(const Gemm &g, Tile &tile, int64_t row_begin, int64_t row_end, int vectors,
                   int64_t skipped, float *c, int64_t fetched) {
  const float *rows[kTileRows];
  const ComputeTile full = tile_of(kTileRows, vectors);
  const float *ahead = tile.b + fetched;
  for (int64_t row = row_begin; row < row_end; row += kTileRows) {
    const int count = static_cast<int>(least(kTileRows, row_end - row));
    if (g.rows != nullptr) {
      tile.a = g.rows + (row - g.first_row) * g.taps + skipped;
    } else {
      for (int i = 0; i < count; ++i)
        rows[i] = g.a + (row + i) * g.a_step + skipped;
      tile.a = rows;
    }
    tile.c = c + row * g.c_step;
    // The first tiles fetch the block behind this one, a part each; the others what is there.
    tile.ahead = ahead < tile.b + 2 * fetched ? ahead : tile.b;
    ahead += tile.taps * tile.depth * kLine;
    (count == kTileRows ? full : tile_of(count, vectors))(tile);
  }
}

void compute_panel(const Gemm &g, int64_t row_begin, int64_t row_end, int64_t panel) {
  const int64_t column = panel * kPanel;
  const int64_t width = least(kPanel, g.n - column);
  const int vectors = vectors_of(width);
  const bool by_taps = g.rows != nullptr;
  // What is cut into blocks: the taps of a window, or k itself.
  const int64_t length = by_taps ? g.taps : g.k;
  const int64_t unit = by_taps ? g.depth : 1;
  const int64_t wanted = (g.k + kMostDepth - 1) / kMostDepth;
  const int64_t blocks = wanted < 1 ? 1 : least(wanted, length < 1 ? 1 : length);
  Tile tile;
  tile.a_row = by_taps ? g.taps : 1;
  tile.c_step = g.c_step;
  tile.bias = g.bias == nullptr ? nullptr : g.bias + column;
  tile.last = static_cast<int>(width - (vectors - 1) * kLanes);
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t begin = length * block / blocks;
    const int64_t count = length * (block + 1) / blocks - begin;
    const bool is_last = block + 1 == blocks;
    tile.taps = by_taps ? count : 1;
    tile.depth = by_taps ? g.depth : count;
    tile.b = g.packed + column * g.k + begin * unit * vectors * kLanes;
    tile.goes_on = block != 0;
    tile.low = broadcast(is_last ? g.low : -__builtin_inff());
    tile.high = broadcast(is_last ? g.high : __builtin_inff());
    compute_block(g, tile, row_begin, row_end, vectors, begin, g.c + column,
                  count * unit * vectors * kLanes);
  }
}

/// Full panels beside each other that one row goes through at once: the sums of one panel are too few
/// to keep the processor busy.
constexpr int kRowPanels = 4;

/// One row times kRowPanels full panels; sums run in the order of compute_tile.
void compute_row(const Gemm &g, int64_t row, int64_t panel) {
  constexpr int kVectors = kRowPanels * kPanelVectors;
  const int64_t column = panel * kPanel;
  const int64_t panel_floats = kPanel * g.k;
  const float *a = g.a + row * g.a_step;
  const float *b = g.packed + column * g.k;
  Vec sums[kVectors];
#pragma GCC unroll 16
  for (int j = 0; j < kVectors; ++j)
    sums[j] = g.bias == nullptr ? Vec{} : load(g.bias + column + j * kLanes);
  for (int64_t k = 0; k < g.k; ++k, b += kPanel) {
    const Vec left = broadcast(a[k]);
#pragma GCC unroll 16
    for (int j = 0; j < kVectors; ++j)
      sums[j] = multiply_add(
          sums[j], left,
          load(b + j / kPanelVectors * panel_floats + j % kPanelVectors * kLanes));
  }
  const Vec low = broadcast(g.low);
  const Vec high = broadcast(g.high);
#pragma GCC unroll 16
  for (int j = 0; j < kVectors; ++j)
    store(g.c + row * g.c_step + column + j * kLanes, clamp(sums[j], low, high));
}

/// What follows on the product, while it is still in the cache.
void finish(const Gemm &g, int64_t row_begin, int64_t row_end, int64_t column, int64_t width) {
  Matrix operands[kMostOperands];
  float *c = g.c + row_begin * g.c_step + column;
  operands[0] = {c, g.c_step, 1};
  for (int i = 1; i < g.chain->inputs; ++i) {
    const Matrix &whole = g.operands[i];
    operands[i] = whole;
    operands[i].data += row_begin * whole.row_step + column * whole.column_step;
  }
  EP_BASE::elementwise(*g.chain, operands, c, g.c_step, row_end - row_begin, width);
}

} // namespace

#ifndef EP_PAIRS

int64_t packed_size(int64_t k, int64_t n) {
  return k * vectors_of(n) * kLanes;
}

void pack_panels(const float *b, int64_t row_step, int64_t column_step, int64_t k, int64_t n,
                 float *packed, int64_t begin, int64_t end) {
  for (int64_t panel = begin; panel < end; ++panel) {
    const int64_t column = panel * kPanel;
    const int64_t width = least(kPanel, n - column);
    const int64_t padded = vectors_of(width) * kLanes;
    float *to = packed + column * k;
    const float *from = b + column * column_step;
    if (column_step == 1) {
      for (int64_t i = 0; i < k; ++i, to += padded, from += row_step) {
        __builtin_memcpy(to, from, width * sizeof(float));
        for (int64_t j = width; j < padded; ++j)
          to[j] = 0.0f;
      }
      continue;
    }
    // Reads run along k, some columns at a time, so that the lines that are written stay in reach.
    for (int64_t j = 0; j < padded; j += 4) {
      for (int64_t i = 0; i < k; ++i)
        for (int64_t lane = j; lane < j + 4; ++lane)
          to[i * padded + lane] =
              lane < width ? from[lane * column_step + i * row_step] : 0.0f;
    }
  }
}

#endif

void gemm(const Gemm &g, int64_t row_begin, int64_t row_end, int64_t panel_begin,
          int64_t panel_end) {
  int64_t panel = panel_begin;
  if (g.rows == nullptr && row_end - row_begin == 1)
    for (; panel + kRowPanels <= panel_end && (panel + kRowPanels) * kPanel <= g.n;
         panel += kRowPanels)
      compute_row(g, row_begin, panel);
  for (; panel < panel_end; ++panel)
    compute_panel(g, row_begin, row_end, panel);
  if (g.chain != nullptr) {
    const int64_t column = panel_begin * kPanel;
    finish(g, row_begin, row_end, column, least(panel_end * kPanel, g.n) - column);
  }
}

#ifdef EP_PAIRS

namespace {

typedef uint16_t ShortVec __attribute__((vector_size(kLanes * 2)));

/// Rounds to bfloat16, halves to the even one; NaN stays NaN.
EP_INLINE ShortVec narrowed(Vec value) {
  const WrappingVec all = reinterpret_cast<WrappingVec>(value);
  const WrappingVec rounded = (all + 0x7fff + (all >> 16 & 1)) >> 16;
  const WrappingVec nan = (all >> 16) | 0x40;
  return __builtin_convertvector(value == value ? rounded : nan, ShortVec);
}

} // namespace

void narrow(const float *x, float *pairs, int64_t rows, int64_t width) {
  const int64_t whole = width / kLanes * kLanes;
  const int64_t step = (width + 1) / 2 * 2;
  auto *to = reinterpret_cast<uint16_t *>(pairs);
  for (int64_t row = 0; row < rows; ++row, x += width, to += step) {
    for (int64_t i = 0; i < whole; i += kLanes) {
      const ShortVec part = narrowed(load(x + i));
      __builtin_memcpy(to + i, &part, sizeof(part));
    }
    if (whole == step)
      continue;
    const ShortVec part = narrowed(load_part(x + whole, static_cast<int>(width - whole)));
    __builtin_memcpy(to + whole, &part, sizeof(uint16_t) * (step - whole));
  }
}

#else

namespace {

/// One row of scores becomes weights that aren't normalised yet; returns 1 / their sum.
float weigh(float *scores, const Attention &work, int64_t row) {
  const float *mask = work.mask == nullptr ? nullptr : work.mask + row * work.mask_row_step;
  const int64_t whole = work.keys / kLanes * kLanes;
  const int rest = static_cast<int>(work.keys - whole);
  const auto scaled = [&](Vec value, int64_t i, int count) {
    value *= work.scale;
    if (mask == nullptr)
      return value;
    if (work.mask_key_step == 0)
      return value + mask[0];
    return value + (count == kLanes ? load(mask + i) : load_part(mask + i, count));
  };
  Vec most = broadcast(-__builtin_inff());
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Vec value = scaled(load(scores + i), i, kLanes);
    store(scores + i, value);
    most = larger(most, value);
  }
  if (rest > 0) {
    float lanes[kLanes];
    store(lanes, scaled(load_part(scores + whole, rest), whole, rest));
    store_part(scores + whole, load(lanes), rest);
    for (int lane = rest; lane < kLanes; ++lane)
      lanes[lane] = -__builtin_inff();
    most = larger(most, load(lanes));
  }
  const Vec top = broadcast(largest_of(most));
  Vec sum = {};
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Vec weight = exponential(load(scores + i) - top);
    store(scores + i, weight);
    sum += weight;
  }
  float total = sum_of(sum);
  if (rest > 0) {
    const Vec weight = exponential(load_part(scores + whole, rest) - top);
    store_part(scores + whole, weight, rest);
    for (int lane = 0; lane < rest; ++lane)
      total += weight[lane];
  }
  return 1.0f / total;
}

void multiply(float *row, int64_t count, float factor) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    store(row + i, load(row + i) * factor);
  if (i < count) {
    const int rest = static_cast<int>(count - i);
    store_part(row + i, load_part(row + i, rest) * factor, rest);
  }
}

} // namespace

void attention(const Attention &work, int64_t row_begin, int64_t row_end) {
  const int64_t rows = row_end - row_begin;
  Gemm scores = {};
  scores.k = work.depth;
  scores.n = work.keys;
  scores.a = work.query + row_begin * work.query_step;
  scores.a_step = work.query_step;
  scores.packed = work.packed_keys;
  scores.c = work.scores;
  scores.c_step = work.keys;
  scores.low = -__builtin_inff();
  scores.high = __builtin_inff();
  gemm(scores, 0, rows, 0, (work.keys + kPanel - 1) / kPanel);
  float *factors = work.scores + rows * work.keys;
  for (int64_t row = 0; row < rows; ++row)
    factors[row] = weigh(work.scores + row * work.keys, work, row_begin + row);
  Gemm values = scores;
  values.k = work.keys;
  values.n = work.value_depth;
  values.a = work.scores;
  values.a_step = work.keys;
  values.packed = work.packed_values;
  values.c = work.result + row_begin * work.result_step;
  values.c_step = work.result_step;
  gemm(values, 0, rows, 0, (work.value_depth + kPanel - 1) / kPanel);
  // The sums are divided out here, where there are fewer numbers than scores.
  for (int64_t row = 0; row < rows; ++row)
    multiply(values.c + row * values.c_step, work.value_depth, factors[row]);
}

#endif

} // namespace ep::EP_LEVEL
