// The table of kernels of one set of instructions.
#include "gemm.h"
#include "parts.h"

#define EP_TEXT_OF(name) #name
#define EP_TEXT(name) EP_TEXT_OF(name)

namespace ep::EP_PAIRS_LEVEL {
void gemm(const Gemm &g, int64_t row_begin, int64_t row_end, int64_t panel_begin,
          int64_t panel_end);
void narrow(const float *x, float *pairs, int64_t rows, int64_t width);
} // namespace ep::EP_PAIRS_LEVEL

namespace ep::EP_LEVEL {

extern const IntegerKernels kIntegerKernels; // see integer.cpp
extern const Kernels kKernels;
const Kernels kKernels = {
    EP_TEXT(EP_LEVEL), kLanes,     kTileRows,   static_cast<int>(kPanel),
    packed_size,       pack_panels, gemm,       attention,
    elementwise,       normalise,  softmax,     reduce_rows,
    reduce_columns,    depthwise,  pool,
    winograd_spread,   winograd_gather, winograd_weights, transpose,
    &kIntegerKernels,  EP_PAIRS_LEVEL::gemm, EP_PAIRS_LEVEL::narrow,
    recur,
};

} // namespace ep::EP_LEVEL
