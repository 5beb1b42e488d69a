// Cells of recurrent layers: what follows on the products of a step, for one sequence of a batch.
#include "functions.h"
#include "parts.h"

namespace ep::EP_LEVEL {
namespace {

/// Functions that models hardly ever ask for, out of the way of the others.
__attribute__((noinline)) Vec activate_rarely(Vec x, const Activation &activation) {
  const Vec zero = {};
  const float alpha = activation.alpha;
  const float beta = activation.beta;
  switch (activation.kind) {
  case Activation::kRelu: return no_less(x, zero);
  case Activation::kSoftsign: return x / (1.0f + absolute(x));
  case Activation::kSoftplus: return softplus(x);
  case Activation::kLeakyRelu: return choose(x < 0.0f, x * alpha, x);
  case Activation::kThresholdedRelu: return choose(x > alpha, x, zero);
  case Activation::kElu: return choose(x < 0.0f, (exponential(x) - 1.0f) * alpha, x);
  case Activation::kAffine: return x * alpha + beta;
  case Activation::kScaledTanh: return alpha * hyperbolic_tangent(x * beta);
  default: return clamp(x * alpha + beta, zero, broadcast(1.0f)); // HardSigmoid
  }
}

EP_INLINE Vec activate(Vec x, const Activation &activation) {
  if (activation.kind == Activation::kSigmoid)
    return sigmoid(x);
  if (activation.kind == Activation::kTanh)
    return hyperbolic_tangent(x);
  return activate_rarely(x, activation);
}

/// Reads and writes up to a vector of one row at a time.
struct Part {
  int64_t begin;
  int count;

  EP_INLINE Vec read(const float *row) const {
    return count == kLanes ? load(row + begin) : load_part(row + begin, count);
  }
  EP_INLINE void write(float *row, Vec value) const {
    if (count == kLanes)
      store(row + begin, value);
    else
      store_part(row + begin, value, count);
  }
};

template <class Function> EP_INLINE void each_part(int64_t width, Function function) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes)
    function(Part{i, kLanes});
  if (i < width)
    function(Part{i, static_cast<int>(width - i)});
}

EP_INLINE Vec bounded(Vec value, const RecurrentCell &cell) {
  return clamp(value, broadcast(-cell.clip), broadcast(cell.clip));
}

/// The input's and the state's part of a gate.
EP_INLINE Vec gate_of(const RecurrentCell &cell, Part part, int gate) {
  const int64_t begin = gate * cell.hidden;
  return part.read(cell.gates + begin) + part.read(cell.product + begin);
}

EP_INLINE void leave(const RecurrentCell &cell, Part part, Vec h) {
  part.write(cell.h, h);
  if (cell.y != nullptr)
    part.write(cell.y, h);
}

void lstm(const RecurrentCell &cell) {
  const float *peephole = cell.peephole;
  each_part(cell.hidden, [&](Part part) {
    const Vec old = part.read(cell.c);
    Vec enter = gate_of(cell, part, 0);
    Vec forget = gate_of(cell, part, 2);
    if (peephole != nullptr) {
      enter += part.read(peephole) * old;
      forget += part.read(peephole + 2 * cell.hidden) * old;
    }
    enter = activate(bounded(enter, cell), cell.activations[0]);
    forget = cell.couple ? 1.0f - enter
                         : activate(bounded(forget, cell), cell.activations[0]);
    const Vec candidate = activate(bounded(gate_of(cell, part, 3), cell), cell.activations[1]);
    const Vec c = forget * old + enter * candidate;
    part.write(cell.c, c);
    Vec out = gate_of(cell, part, 1);
    if (peephole != nullptr)
      out += part.read(peephole + cell.hidden) * c;
    leave(cell, part,
          activate(bounded(out, cell), cell.activations[0]) * activate(c, cell.activations[2]));
  });
}

/// Opens the gates of a GRU in place of their products; `carried` becomes what the reset leaves of h.
void open_gru(const RecurrentCell &cell) {
  each_part(cell.hidden, [&](Part part) {
    const Vec update = activate(bounded(gate_of(cell, part, 0), cell), cell.activations[0]);
    const Vec reset = activate(bounded(gate_of(cell, part, 1), cell), cell.activations[0]);
    part.write(cell.product, update);
    const float *last = cell.resets_product ? cell.product + 2 * cell.hidden : cell.h;
    part.write(cell.carried, reset * part.read(last));
  });
}

void close_gru(const RecurrentCell &cell) {
  each_part(cell.hidden, [&](Part part) {
    const Vec update = part.read(cell.product);
    const Vec sum = part.read(cell.gates + 2 * cell.hidden) + part.read(cell.carried);
    const Vec candidate = activate(bounded(sum, cell), cell.activations[1]);
    leave(cell, part, (1.0f - update) * candidate + update * part.read(cell.h));
  });
}

void plain(const RecurrentCell &cell) {
  each_part(cell.hidden, [&](Part part) {
    leave(cell, part, activate(bounded(gate_of(cell, part, 0), cell), cell.activations[0]));
  });
}

} // namespace

void recur(const RecurrentCell &cell, RecurrentCell::Phase phase) {
  switch (phase) {
  case RecurrentCell::kPlain: return plain(cell);
  case RecurrentCell::kLstm: return lstm(cell);
  case RecurrentCell::kOpenGru: return open_gru(cell);
  case RecurrentCell::kCloseGru: return close_gru(cell);
  }
}

} // namespace ep::EP_LEVEL
