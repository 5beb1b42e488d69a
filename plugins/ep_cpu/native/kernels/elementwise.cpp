// Chains of elementwise operations, computed block by block, so that what lies between the
// operations never leaves the innermost cache.
#include "functions.h"
#include "parts.h"

namespace ep::EP_LEVEL {
namespace {

constexpr int kBlock = 512; // floats of a register

EP_INLINE Vec sign_of(Vec x) {
  const Vec one = with_sign(broadcast(1.0f), x);
  return choose((x == 0.0f) | (x != x), x, one);
}

EP_INLINE Vec floor_of(Vec x) {
  const Vec rounded = round_even(x);
  return with_sign(choose(rounded > x, rounded - 1.0f, rounded), x);
}

EP_INLINE Vec ceiling_of(Vec x) {
  const Vec rounded = round_even(x);
  return with_sign(choose(rounded < x, rounded + 1.0f, rounded), x);
}

template <class Function>
EP_INLINE void map_one(const float *a, float *out, int count, Function function) {
  int i = 0;
  for (; i + kLanes <= count; i += kLanes)
    store(out + i, function(load(a + i)));
  if (i < count)
    store_part(out + i, function(load_part(a + i, count - i)), count - i);
}

template <class Function>
EP_INLINE void map_two(const float *a, const float *b, float *out, int count, Function function) {
  int i = 0;
  for (; i + kLanes <= count; i += kLanes)
    store(out + i, function(load(a + i), load(b + i)));
  if (i < count) {
    const int rest = count - i;
    store_part(out + i, function(load_part(a + i, rest), load_part(b + i, rest)), rest);
  }
}

template <class Function>
EP_INLINE void map_three(const float *a, const float *b, const float *c, float *out, int count,
                         Function function) {
  int i = 0;
  for (; i + kLanes <= count; i += kLanes)
    store(out + i, function(load(a + i), load(b + i), load(c + i)));
  if (i < count) {
    const int rest = count - i;
    const Vec result =
        function(load_part(a + i, rest), load_part(b + i, rest), load_part(c + i, rest));
    store_part(out + i, result, rest);
  }
}

void execute(Code code, const float *a, const float *b, const float *c, float *out, int count) {
  switch (code) {
  case Code::kAdd: return map_two(a, b, out, count, [](Vec x, Vec y) { return x + y; });
  case Code::kSub: return map_two(a, b, out, count, [](Vec x, Vec y) { return x - y; });
  case Code::kMul: return map_two(a, b, out, count, [](Vec x, Vec y) { return x * y; });
  case Code::kDiv: return map_two(a, b, out, count, [](Vec x, Vec y) { return x / y; });
  case Code::kMax: return map_two(a, b, out, count, [](Vec x, Vec y) { return larger(x, y); });
  case Code::kMin: return map_two(a, b, out, count, [](Vec x, Vec y) { return smaller(x, y); });
  case Code::kFma:
    return map_three(a, b, c, out, count, [](Vec x, Vec y, Vec z) { return x * y + z; });
  case Code::kSelectNegative:
    return map_three(a, b, c, out, count,
                     [](Vec x, Vec y, Vec z) { return choose(x < 0.0f, y, z); });
  case Code::kNeg: return map_one(a, out, count, [](Vec x) { return -x; });
  case Code::kAbs: return map_one(a, out, count, [](Vec x) { return absolute(x); });
  case Code::kSqrt: return map_one(a, out, count, [](Vec x) { return square_root(x); });
  case Code::kReciprocal: return map_one(a, out, count, [](Vec x) { return 1.0f / x; });
  case Code::kExp: return map_one(a, out, count, [](Vec x) { return exponential(x); });
  case Code::kLog: return map_one(a, out, count, [](Vec x) { return logarithm(x); });
  case Code::kTanh: return map_one(a, out, count, [](Vec x) { return hyperbolic_tangent(x); });
  case Code::kSigmoid: return map_one(a, out, count, [](Vec x) { return sigmoid(x); });
  case Code::kErf: return map_one(a, out, count, [](Vec x) { return error_function(x); });
  case Code::kGelu: return map_one(a, out, count, [](Vec x) { return gelu(x); });
  case Code::kGeluTanh: return map_one(a, out, count, [](Vec x) { return gelu_by_tangent(x); });
  case Code::kSilu: return map_one(a, out, count, [](Vec x) { return x * sigmoid(x); });
  case Code::kRelu:
    return map_one(a, out, count, [](Vec x) { return no_less(x, Vec{}); });
  case Code::kFloor: return map_one(a, out, count, [](Vec x) { return floor_of(x); });
  case Code::kCeil: return map_one(a, out, count, [](Vec x) { return ceiling_of(x); });
  case Code::kRound: return map_one(a, out, count, [](Vec x) { return round_even(x); });
  case Code::kSign: return map_one(a, out, count, [](Vec x) { return sign_of(x); });
  case Code::kSoftplus: return map_one(a, out, count, [](Vec x) { return softplus(x); });
  case Code::kCodeCount: return;
  }
}

void fill(float *to, float value, int count) {
  const Vec lanes = broadcast(value);
  for (int i = 0; i < count; i += kLanes)
    store(to + i, lanes);
}

/// Fills the registers of the inputs for `count` columns of one row; lines that lie ready stay.
EP_INLINE void fetch(const Matrix &from, int64_t row, int64_t column, int count, float *own,
                     const float **lane) {
  const float *data = from.data + row * from.row_step;
  if (from.column_step == 1) {
    *lane = data + column;
  } else if (from.column_step == 0) {
    if (column == 0 && (row == 0 || from.row_step != 0))
      fill(own, *data, kBlock);
    *lane = own;
  } else {
    for (int i = 0; i < count; ++i)
      own[i] = data[(column + i) * from.column_step];
    *lane = own;
  }
}

} // namespace

void elementwise(const Chain &chain, const Matrix *operands, float *out, int64_t out_row_step,
                 int64_t rows, int64_t columns) {
  alignas(64) float memory[kMostRegisters][kBlock];
  const float *lanes[kMostRegisters];
  for (int i = 0; i < chain.registers; ++i)
    lanes[i] = memory[i];
  const int narrow = columns < kBlock ? static_cast<int>(columns) : kBlock;
  for (int i = 0; i < chain.constants; ++i)
    fill(memory[chain.inputs + i], chain.values[i], narrow);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; column += kBlock) {
      const int64_t left = columns - column;
      const int count = left < kBlock ? static_cast<int>(left) : kBlock;
      for (int i = 0; i < chain.inputs; ++i)
        fetch(operands[i], row, column, count, memory[i], &lanes[i]);
      for (int i = 0; i < chain.length; ++i) {
        const Instruction &step = chain.code[i];
        float *to = i + 1 < chain.length ? memory[step.result]
                                         : out + row * out_row_step + column;
        execute(step.code, lanes[step.a], lanes[step.b], lanes[step.c], to, count);
      }
    }
}

} // namespace ep::EP_LEVEL
