// What every set of instructions offers: plain functions over plain structures, in one table.
//
// This header is included by files that are compiled for different sets of instructions. It defines
// types and no functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ep {

/// Operations of the machine that computes chains of elementwise operators.
/// `a`, `b` and `c` name registers; the result goes to another one or to one of them.
enum class Code : uint8_t {
  kAdd, kSub, kMul, kDiv, kMax, kMin, kFma, kSelectNegative,
  kNeg, kAbs, kSqrt, kReciprocal, kExp, kLog, kTanh, kSigmoid, kErf, kGelu, kGeluTanh, kSilu,
  kRelu, kFloor, kCeil, kRound, kSign, kSoftplus,
  kCodeCount,
};

struct Instruction {
  Code code;
  uint8_t result, a, b, c;
};

constexpr int kMostRegisters = 24;
constexpr int kMostOperands = 12;

/// A chain of elementwise operations. Registers from 0 on hold the inputs, then come constants,
/// then what is computed; the last instruction's result is the output.
struct Chain {
  const Instruction *code;
  int length;
  int inputs;
  int constants;
  int registers;
  const float *values; // of the constants
};

/// A float matrix seen by rows; a step of 0 repeats.
struct Matrix {
  const float *data;
  int64_t row_step;
  int64_t column_step; // 0, 1, or any other step, which is slower
};

/// C[rows, n] = clamp(A[rows, k] * B[k, n] + bias[n]), then `chain` over the result.
/// The order in which a sum is added up depends on k alone.
struct Gemm {
  int64_t k, n;
  const float *a; // row i begins at a + i * a_step, unless `taps` is set
  int64_t a_step;
  const float *packed; // B in panels, see pack_panels
  float *c;
  int64_t c_step;
  const float *bias; // n floats or null
  float low, high;
  // Implicit convolutions: k is taps * depth, and row i of A is made of `taps` pieces of `depth`
  // floats, which begin at the pointers rows[(i - first_row) * taps ...].
  const float *const *rows;
  int64_t first_row, taps, depth;
  // What follows on the result: operand 0 of the chain is the result itself, the others begin at
  // row 0 and column 0 of the whole matrix.
  const Chain *chain;
  const Matrix *operands;
};

/// Softmax(scale * Q K^T + mask) V for some rows of one head.
struct Attention {
  int64_t keys, depth, value_depth;
  const float *query; // [rows, depth]
  int64_t query_step;
  const float *packed_keys;   // K^T, [depth, keys], in panels
  const float *packed_values; // V, [keys, value_depth], in panels
  float *result;              // [rows, value_depth]
  int64_t result_step;
  const float *mask; // mask + row * mask_row_step + key * mask_key_step, or null
  int64_t mask_row_step, mask_key_step;
  float scale;
  float *scores; // scratch for rows * (keys + 1) floats
};

/// How a window moves over a picture whose channels are innermost.
struct Window {
  int64_t height, width, channels;       // of the input
  int64_t out_height, out_width;
  int64_t kernel_height, kernel_width;
  int64_t stride_y, stride_x, dilation_y, dilation_x;
  int64_t top, left;                     // padding
};

struct Kernels {
  const char *name;
  int lanes;
  int tile_rows;
  int panel; // columns of a full panel of packed B

  /// Floats that a packed B takes.
  int64_t (*packed_size)(int64_t k, int64_t n);
  /// Packs panels [begin, end) of B[k, n], whose element (i, j) is b[i * row_step + j * column_step].
  void (*pack_panels)(const float *b, int64_t row_step, int64_t column_step, int64_t k, int64_t n,
                      float *packed, int64_t begin, int64_t end);
  void (*gemm)(const Gemm &, int64_t row_begin, int64_t row_end, int64_t panel_begin,
               int64_t panel_end);
  void (*attention)(const Attention &, int64_t row_begin, int64_t row_end);

  /// Runs a chain over rows of `columns` floats.
  void (*elementwise)(const Chain &, const Matrix *operands, float *out, int64_t out_row_step,
                      int64_t rows, int64_t columns);

  /// (x - mean) / sqrt(variance + epsilon) * scale + bias, row by row; `bias` may be null. Without
  /// `centred` the mean is taken for 0, which is RMSNormalization.
  void (*normalise)(const float *x, const float *scale, const float *bias, float *out, int64_t rows,
                    int64_t width, float epsilon, bool centred);
  void (*softmax)(const float *x, float *out, int64_t rows, int64_t width, bool logarithm);
  /// kind: 0 sum, 1 mean, 2 largest, 3 smallest, 4 sum of squares, 5 sum of sizes.
  void (*reduce_rows)(const float *x, float *out, int64_t rows, int64_t width, int kind);
  /// Over the rows of a matrix, column by column, for columns [begin, end).
  void (*reduce_columns)(const float *x, float *out, int64_t rows, int64_t width, int64_t begin,
                         int64_t end, int kind);

  /// Depthwise convolution of output rows [begin, end); weights are [taps, channels].
  void (*depthwise)(const Window &, const float *x, const float *weights, const float *bias,
                    float low, float high, float *out, int64_t begin, int64_t end);
  /// Pooling of output rows [begin, end); averages count padding or not.
  void (*pool)(const Window &, const float *x, float *out, int64_t begin, int64_t end, bool largest,
               bool count_padding);
  /// [rows, columns] as [columns, rows] for rows [begin, end).
  void (*transpose)(const float *x, int64_t x_step, float *out, int64_t out_step, int64_t begin,
                    int64_t end, int64_t columns);
};

} // namespace ep
