// Operands in bfloat16, two numbers in the place of a float; see Kernels::gemm_pairs.
#pragma once

#include <algorithm>

#include "../core/operation.h"

namespace ep {

inline int64_t pairs_of(int64_t width) { return (width + 1) / 2; }

/// Rounds rows on all threads.
inline void narrow_rows(const Kernels &kernels, const Crew &crew, const float *from, float *to,
                        int64_t rows, int64_t width) {
  const Chunks chunks(rows, 16384 / std::max<int64_t>(width, 1));
  crew.each(chunks.count, [&](int64_t chunk, int) {
    const int64_t begin = chunks.begin(chunk);
    kernels.narrow(from + begin * width, to + begin * pairs_of(width), chunks.end(chunk) - begin,
                   width);
  });
}

} // namespace ep
