// How a product is cut into chunks for the threads.
#pragma once

#include <algorithm>

#include "../core/operation.h"

namespace ep {

constexpr int64_t kRowBlock = 144;      // rows of A that stay in the cache beside a panel
constexpr int64_t kChunkWork = 1 << 18; // multiplications that are worth handing to a thread
constexpr int64_t kCached = 1 << 17;    // floats of A that stay in the cache while panels go by

/// A product cut into blocks of rows times groups of panels. No sum depends on it.
struct Tiling {
  int64_t rows, row_block, row_blocks, panels, group, groups;
  bool rows_first; // neighbouring chunks share panels, else rows

  Tiling(int64_t m, int64_t n, int64_t k, const Kernels &kernels, int threads)
      : Tiling(m, n, k, kernels.tile_rows, kernels.panel, threads) {}

  Tiling(int64_t m, int64_t n, int64_t k, int tile_rows, int panel, int threads) : rows(m) {
    panels = (n + panel - 1) / panel;
    row_blocks = std::max<int64_t>((m + kRowBlock - 1) / kRowBlock, 1);
    if (threads > 1 && row_blocks * panels < 4 * threads)
      row_blocks = std::max<int64_t>(std::min<int64_t>(4 * threads, m / 32), row_blocks);
    const int64_t even = (m + row_blocks - 1) / row_blocks;
    row_block = std::max<int64_t>(
        (even + tile_rows - 1) / tile_rows * tile_rows, 1);
    row_blocks = (m + row_block - 1) / row_block;
    // Fewer rows than a tile has take as long as a tile: the panel has to be read all the same.
    const int64_t work = row_block * panel * k;
    group = std::clamp<int64_t>(kChunkWork / std::max<int64_t>(work, 1), 1,
                                std::max<int64_t>(panels, 1));
    groups = (panels + group - 1) / group;
    rows_first = m * k <= kCached;
  }

  int64_t count() const { return row_blocks * groups; }
  int64_t first_row(int64_t chunk) const {
    return (rows_first ? chunk % row_blocks : chunk / groups) * row_block;
  }
  int64_t last_row(int64_t chunk) const { return std::min(first_row(chunk) + row_block, rows); }

  /// Calls `multiply` with the first panel of a chunk and the one behind the last.
  template <class Multiply> void call(int64_t chunk, const Multiply &multiply) const {
    const int64_t panel = (rows_first ? chunk / row_blocks : chunk % groups) * group;
    multiply(panel, std::min(panel + group, panels));
  }

  void run(const Kernels &kernels, const Gemm &gemm, int64_t chunk, bool in_pairs = false) const {
    call(chunk, [&](int64_t panel_begin, int64_t panel_end) {
      const auto multiply = in_pairs ? kernels.gemm_pairs : kernels.gemm;
      multiply(gemm, first_row(chunk), last_row(chunk), panel_begin, panel_end);
    });
  }
};

} // namespace ep
