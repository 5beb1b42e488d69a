// How a product is cut into chunks for the threads.
#pragma once

#include <algorithm>

#include "../core/operation.h"

namespace ep {

constexpr int64_t kRowBlock = 120;      // rows of A that stay in the cache; full tiles of 6 and of 8
constexpr int64_t kChunkWork = 1 << 18; // multiplications that are worth handing to a thread

/// A product cut into blocks of rows times groups of panels.
struct Tiling {
  int64_t rows, row_block, row_blocks, panels, group, groups;

  Tiling(int64_t m, int64_t n, int64_t k, int panel) : rows(m) {
    row_blocks = std::max<int64_t>((m + kRowBlock - 1) / kRowBlock, 1);
    row_block = std::max<int64_t>((m + row_blocks - 1) / row_blocks, 1);
    row_block = std::min((row_block + 23) / 24 * 24, std::max<int64_t>(m, 1));
    row_blocks = (m + row_block - 1) / row_block;
    panels = (n + panel - 1) / panel;
    group = std::max<int64_t>(kChunkWork / std::max<int64_t>(row_block * panel * k, 1), 1);
    groups = panels == 0 ? 0 : (panels + group - 1) / group;
  }

  int64_t count() const { return row_blocks * groups; }
  int64_t first_row(int64_t chunk) const { return chunk / groups * row_block; }
  int64_t last_row(int64_t chunk) const { return std::min(first_row(chunk) + row_block, rows); }

  void run(const Kernels &kernels, const Gemm &gemm, int64_t chunk) const {
    const int64_t panel = chunk % groups * group;
    kernels.gemm(gemm, first_row(chunk), last_row(chunk), panel, std::min(panel + group, panels));
  }
};

} // namespace ep
