// The kernels of one set of instructions, as `kernels.h` describes them.
#pragma once

#include "kernels.h"

namespace ep::EP_LEVEL {

int64_t packed_size(int64_t k, int64_t n);
void pack_panels(const float *b, int64_t row_step, int64_t column_step, int64_t k, int64_t n,
                 float *packed, int64_t begin, int64_t end);
void gemm(const Gemm &g, int64_t row_begin, int64_t row_end, int64_t panel_begin,
          int64_t panel_end);
void narrow(const float *x, float *pairs, int64_t rows, int64_t width); // where EP_PAIRS is set
void attention(const Attention &work, int64_t row_begin, int64_t row_end);
void elementwise(const Chain &chain, const Matrix *operands, float *out, int64_t out_row_step,
                 int64_t rows, int64_t columns);
void normalise(const float *x, const float *scale, const float *bias, float *out, int64_t rows,
               int64_t width, float epsilon, bool centred);
void softmax(const float *x, float *out, int64_t rows, int64_t width, bool logarithm);
void reduce_rows(const float *x, float *out, int64_t rows, int64_t width, int kind);
void reduce_columns(const float *x, float *out, int64_t rows, int64_t width, int64_t begin,
                    int64_t end, int kind);
void depthwise(const Window &window, const float *x, const float *weights, const float *bias,
               float low, float high, float *out, int64_t begin, int64_t end);
void pool(const Window &window, const float *x, float *out, int64_t begin, int64_t end,
          bool largest, bool count_padding);
void winograd_spread(const Winograd &w, const float *x, int64_t begin, int64_t end, float *to);
void winograd_gather(const Winograd &w, const float *products, const float *bias, float low,
                     float high, float *out, int64_t begin, int64_t end, int64_t column,
                     int64_t width);
void winograd_weights(const float *filter, int64_t side, double *points);
void transpose(const float *x, int64_t x_step, float *out, int64_t out_step, int64_t begin,
               int64_t end, int64_t columns);
void recur(const RecurrentCell &cell, RecurrentCell::Phase phase);

} // namespace ep::EP_LEVEL
