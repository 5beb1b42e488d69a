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

/// A convolution of 3 x 3 with stride 1 in tiles of side x side places, with channels innermost.
/// Points, (side + 2)^2 of them, are what a product is made for; tiles are counted over the batch.
struct Winograd {
  int64_t side;                    // 4 or 2
  int64_t height, width, channels; // of the input
  int64_t out_height, out_width, out_channels;
  int64_t top, left;               // padding
  int64_t tiles_y, tiles_x;        // of one picture
  int64_t spread_step, gather_step; // floats from a point to the next, before and after products
};

/// C[rows, n] = A[rows, k] * B[k, n] of 8-bit integers, exact (modulo 2^32), and what follows on it.
///
/// Sums first become (sum + starts[column] - zeros[column] * (sum of the row of A)), which brings in
/// the zero points. That is an integer result. A float result is
/// clamp(sum * scales[column] + offsets[column], low, high), then the chain. An 8-bit result is that
/// number, whose scales and bounds count in its steps, rounded to even, plus `zero`.
struct IntegerGemm {
  int64_t k, n;
  const uint8_t *a; // row i begins at a + i * a_step, unless `rows` is set
  int64_t a_step;
  bool flips; // A is signed: the kernel adds 128 to its elements, whose zero point does so too
  const int8_t *packed; // B in panels, see pack_bytes
  const int32_t *starts;
  const int32_t *zeros; // n integers or null
  enum Result : uint8_t { kInteger, kFloat, kBytes } result;
  void *c;
  int64_t c_step;
  const float *scales;
  const float *offsets; // n floats or null
  float low, high;
  int32_t zero;
  // Implicit convolutions, as for Gemm; depth is padded to whole words in the packed B.
  const uint8_t *const *rows;
  int64_t first_row, taps, depth;
  const Chain *chain; // of a float result
  const Matrix *operands;
  void (*elementwise)(const Chain &, const Matrix *operands, float *out, int64_t out_row_step,
                      int64_t rows, int64_t columns); // runs the chain
  // Of an 8-bit result: a quantised operand that is added to it, null without one. The result is
  // then the rounded number * own_factor + beside * beside_factor + beside_offset, bounded and
  // rounded once more.
  const uint8_t *beside; // [rows, n] as C
  bool beside_signed;
  float own_factor, beside_factor, beside_offset;
  float last_low, last_high;
};

/// How 8-bit integers are packed and multiplied, and what leads to them and back.
struct IntegerKernels {
  int tile_rows;
  int panel; // columns of a full panel of packed B

  /// Bytes of a packed B, whose rows are `taps` pieces of `depth`.
  int64_t (*packed_bytes)(int64_t taps, int64_t depth, int64_t n);
  /// Packs panels [begin, end) of B[taps * depth, n] and adds up its columns. `flips`: B is unsigned;
  /// 128 is taken from its elements.
  void (*pack_bytes)(const uint8_t *b, int64_t row_step, int64_t column_step, int64_t taps,
                     int64_t depth, int64_t n, bool flips, int8_t *packed, int32_t *sums,
                     int64_t begin, int64_t end);
  void (*gemm)(const IntegerGemm &, int64_t row_begin, int64_t row_end, int64_t panel_begin,
               int64_t panel_end);
  /// clamp(round(x / scale) + zero, least, most) as bytes.
  void (*quantise)(const float *x, uint8_t *out, int64_t count, float scale, float zero,
                   float least, float most);
  /// (x - zero) * scale.
  void (*dequantise)(const uint8_t *x, bool is_signed, float *out, int64_t count, float scale,
                     float zero);
  /// A panel of packed floats [k, columns] out of numbers of 4 bits: for each block of `block` rows, then
  /// each two rows, a byte per column with the first row in the lower half. Scales and zero points are
  /// [blocks, columns]; `columns` are whole vectors.
  void (*unpack_nibbles)(const uint8_t *codes, const float *scales, const float *zeros, int64_t k,
                         int64_t block, int64_t columns, float *out);
  /// Smallest and largest number, which are NaN if one is.
  void (*bounds)(const float *x, int64_t count, float *smallest, float *largest);
  /// clamp(round(a * a_factor + b * b_factor + offset)) + zero as bytes.
  void (*add_bytes)(const uint8_t *a, const uint8_t *b, uint8_t *out, int64_t count, bool a_signed,
                    bool b_signed, float a_factor, float b_factor, float offset, float low,
                    float high, int32_t zero);
};

/// A function of a recurrent layer; alpha and beta are those of the ONNX specification.
struct Activation {
  enum Kind : uint8_t {
    kSigmoid, kTanh, kRelu, kSoftsign, kSoftplus, kLeakyRelu, kThresholdedRelu, kElu, kAffine,
    kScaledTanh, kHardSigmoid,
  } kind;
  float alpha, beta;
};

/// One step of one sequence of a recurrent layer. Gates lie in the order of the ONNX specification.
struct RecurrentCell {
  /// What there is to compute; a GRU takes two phases, with a product between them where it resets
  /// the state and not the product.
  enum Phase : uint8_t { kPlain, kLstm, kOpenGru, kCloseGru };

  int64_t hidden;
  const float *gates;    // the input's part, biases included
  float *product;        // the state's part, [gates, hidden]; of a GRU it is written to
  float *carried;        // of a GRU: what the reset gate leaves
  const float *peephole; // for input, output and forget gate, or null
  float *h, *c;          // the state, which moves on
  float *y;              // gets the new h too, unless it is null
  float clip;            // bounds what goes into the gates
  Activation activations[3];
  bool couple;         // the forget gate is 1 - the input gate
  bool resets_product; // linear_before_reset
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
  /// Tiles [begin, end) of the input as values at the points: [points][tiles][channels].
  void (*winograd_spread)(const Winograd &, const float *x, int64_t begin, int64_t end, float *to);
  /// Places of the output out of products [points][tiles][width], which are columns
  /// [column, column + width).
  void (*winograd_gather)(const Winograd &, const float *products, const float *bias, float low,
                          float high, float *out, int64_t begin, int64_t end, int64_t column,
                          int64_t width);
  /// One filter of 3 x 3 as its values at the points.
  void (*winograd_weights)(const float *filter, int64_t side, double *points);
  /// [rows, columns] as [columns, rows] for rows [begin, end).
  void (*transpose)(const float *x, int64_t x_step, float *out, int64_t out_step, int64_t begin,
                    int64_t end, int64_t columns);
  const IntegerKernels *integers;

  /// As `gemm` in bfloat16, with sums in float32: each float of A and B holds two numbers, the next
  /// of the row or column in its upper half, and k and depth count such pairs.
  void (*gemm_pairs)(const Gemm &, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                     int64_t panel_end);
  /// Rounds rows of `width` floats to pairs; a row of odd width ends in a 0.
  void (*narrow)(const float *x, float *pairs, int64_t rows, int64_t width);

  /// One step of one sequence of a recurrent layer, behind the products.
  void (*recur)(const RecurrentCell &, RecurrentCell::Phase);
};

} // namespace ep
