// RNN, LSTM and GRU in float32, and LSTM with 8-bit weights. Weights are constant and packed when the
// program is made.
//
// Inputs: X, W, R, B, sequence lengths, initial h, initial c, peepholes; all from B on may be left
// out. With "quantised" also scale and zero point of W, then those of R, and both lie transposed.
// Attributes: "kind" (0 RNN, 1 LSTM, 2 GRU), "backwards" (per direction), "batch_first", "clip",
// "activations", "alphas" and "betas" (of all directions, in order), "couple", "resets_product",
// "wanted" (which of Y, Y_h and Y_c are outputs).
//
// The input's part of all steps is one product; then sequences go step by step, directions and parts
// of the batch on threads of their own. No sum depends on how they are shared out.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "factors.h"

namespace ep {
namespace {

enum Input : size_t { kX, kW, kR, kB, kLengths, kInitialH, kInitialC, kPeephole,
                    kScaleW, kZeroW, kScaleR, kZeroR };
enum Kind : int64_t { kRnn, kLstm, kGru };

struct Direction {
  bool backwards;
  std::unique_ptr<const Factor> input;
  std::unique_ptr<const Factor> state; // without the last gate if that has a factor of its own
  std::unique_ptr<const Factor> last;  // of a GRU that resets the state
  Activation activations[3];
};

/// Lengths of one plan, and where things lie in its workspace.
struct Sizes {
  int64_t steps, batch, width, hidden, gates, directions;
  bool batch_first;

  int64_t columns() const { return gates * hidden; }
  int64_t row(int64_t step, int64_t sample) const {
    return batch_first ? sample * steps + step : step * batch + sample;
  }
  int64_t y_at(int64_t step, int64_t direction, int64_t sample) const {
    return hidden * (batch_first ? (sample * steps + step) * directions + direction
                                 : (step * directions + direction) * batch + sample);
  }
  int64_t state_at(int64_t direction, int64_t sample) const {
    return hidden * (batch_first ? sample * directions + direction : direction * batch + sample);
  }
  Shape state() const {
    return batch_first ? Shape{batch, directions, hidden} : Shape{directions, batch, hidden};
  }
  /// Floats of one direction: gates, product, and h, c and what a GRU carries.
  int64_t gate_floats() const { return steps * batch * columns(); }
  int64_t floats() const { return gate_floats() + batch * (columns() + 4 * hidden); }
};

class Recurrent final : public Operation {
public:
  explicit Recurrent(const Making &making)
      : kind_(making.attributes.integer("kind")),
        batch_first_(making.attributes.integer("batch_first", 0) != 0),
        couple_(making.attributes.integer("couple", 0) != 0),
        resets_product_(making.attributes.integer("resets_product", 0) != 0),
        quantised_(making.attributes.integer("quantised", 0) != 0),
        clip_(making.attributes.number("clip", std::numeric_limits<float>::infinity())),
        wanted_(making.attributes.integers("wanted")) {
    const Constant *w = making.constants[kW];
    const Constant *r = making.constants[kR];
    if (w == nullptr || r == nullptr || w->spec.shape.rank() != 3 || r->spec.shape.rank() != 3)
      throw Mistake("weights of a recurrent layer are constants of three axes");
    gates_ = kind_ == kLstm ? 4 : kind_ == kGru ? 3 : 1;
    width_ = w->spec.shape[quantised_ ? 1 : 2];
    hidden_ = r->spec.shape[quantised_ ? 1 : 2];
    const std::vector<int64_t> backwards = making.attributes.integers("backwards");
    for (size_t d = 0; d < backwards.size(); ++d)
      directions_.push_back(make_direction(making, *w, *r, int64_t(d), backwards[d] != 0));
  }

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(kX);
    need(x.type == DType::kFloat && x.shape.rank() == 3 && x.shape[2] == width_, "another input");
    const Sizes sizes{x.shape[batch_first_ ? 1 : 0], x.shape[batch_first_ ? 0 : 1], width_, hidden_,
                      gates_, int64_t(directions_.size()), batch_first_};
    check(planning, kB, DType::kFloat, {sizes.directions, 2 * sizes.columns()});
    check(planning, kLengths, DType::kInt32, {sizes.batch});
    check(planning, kInitialH, DType::kFloat, sizes.state());
    check(planning, kInitialC, DType::kFloat, sizes.state());
    check(planning, kPeephole, DType::kFloat, {sizes.directions, 3 * hidden_});
    Planned planned;
    const Shape y = batch_first_ ? Shape{sizes.batch, sizes.steps, sizes.directions, hidden_}
                                 : Shape{sizes.steps, sizes.directions, sizes.batch, hidden_};
    const Shape shapes[] = {y, sizes.state(), sizes.state()};
    for (size_t i = 0; i < wanted_.size(); ++i)
      if (wanted_[i] != 0)
        planned.outputs.push_back({DType::kFloat, shapes[i]});
    // Codes of a quantised product depend on the whole batch.
    const int64_t most =
        quantised_ ? 1 : std::max<int64_t>(sizes.batch / planning.kernels.tile_rows, 1);
    const int64_t groups = std::clamp<int64_t>(planning.threads / sizes.directions, 1, most);
    const int64_t rows = sizes.steps * sizes.batch;
    const size_t scratch = std::max(directions_[0].input->scratch_bytes(rows),
                                    directions_[0].state->scratch_bytes(sizes.batch));
    const size_t each = aligned(size_t(sizes.floats()) * sizeof(float)) + scratch;
    planned.workspace = size_t(sizes.directions) * each;
    planned.task = task([=, this](const Running &running) {
      check_lengths(running, sizes);
      std::atomic<bool> is_finite = true;
      for (int64_t d = 0; d < sizes.directions; ++d) {
        std::byte *own = running.workspace + size_t(d) * each;
        const float *bias = running.input(kB);
        const Factor::Operands operands = {
            running.input(kX), bias == nullptr ? nullptr : bias + d * 2 * sizes.columns(),
            reinterpret_cast<float *>(own), sizes.columns(), own + each - scratch};
        need(directions_[size_t(d)].input->multiply_all(running, operands, rows),
             "values that aren't finite");
      }
      running.crew.each(sizes.directions * groups, [&](int64_t chunk, int) {
        const int64_t group = chunk % groups;
        const int64_t d = chunk / groups;
        std::byte *own = running.workspace + size_t(d) * each;
        if (!walk(running, sizes, d, sizes.batch * group / groups,
                  sizes.batch * (group + 1) / groups, reinterpret_cast<float *>(own),
                  own + each - scratch))
          is_finite = false;
      });
      need(is_finite, "values that aren't finite");
    });
    return planned;
  }

  size_t constant_bytes() const override {
    size_t total = 0;
    for (const Direction &direction : directions_)
      total += direction.input->bytes() + direction.state->bytes() +
               (direction.last == nullptr ? 0 : direction.last->bytes());
    return total;
  }

private:
  Direction make_direction(const Making &making, const Constant &w, const Constant &r, int64_t d,
                           bool backwards) const {
    const int64_t columns = gates_ * hidden_;
    Direction direction{backwards, nullptr, nullptr, nullptr, {}};
    if (quantised_) {
      direction.input = quantised(making, w, kScaleW, d);
      direction.state = quantised(making, r, kScaleR, d);
    } else {
      const float *state = r.floats() + d * columns * hidden_;
      const bool splits = kind_ == kGru && !resets_product_;
      direction.input =
          float_factor(making, w.floats() + d * columns * width_, width_, columns);
      direction.state = float_factor(making, state, hidden_, splits ? 2 * hidden_ : columns);
      if (splits)
        direction.last = float_factor(making, state + 2 * hidden_ * hidden_, hidden_, hidden_);
    }
    const std::vector<int64_t> kinds = making.attributes.integers("activations");
    const std::vector<float> alphas = making.attributes.numbers("alphas");
    const std::vector<float> betas = making.attributes.numbers("betas");
    const size_t count = kind_ == kLstm ? 3 : kind_ == kGru ? 2 : 1;
    for (size_t i = 0; i < count; ++i) {
      const size_t at = size_t(d) * count + i;
      direction.activations[i] = {static_cast<Activation::Kind>(kinds.at(at)), alphas.at(at),
                                  betas.at(at)};
    }
    return direction;
  }

  /// 8-bit weights of a direction; their scales are the input `scale`, then come the zero points.
  static std::unique_ptr<const Factor> quantised(const Making &making, const Constant &weights,
                                                 size_t scale, int64_t d) {
    const Constant *scales = making.constants[scale];
    const Constant *zeros = making.constants[scale + 1];
    if (scales == nullptr || zeros == nullptr)
      throw Mistake("scales of a recurrent layer are constants");
    const Shape matrix{weights.spec.shape[1], weights.spec.shape[2]};
    const int64_t parameters = scales->spec.shape.count() / weights.spec.shape[0];
    return quantised_factor(making, {{{weights.spec.type, matrix},
                                      weights.data + d * matrix.count()},
                                     scales->floats() + d * parameters,
                                     zeros->data + d * parameters,
                                     parameters});
  }

  static void check(const Planning &planning, size_t index, DType type, const Shape &shape) {
    if (planning.has(index))
      need(planning.input(index).type == type && planning.input(index).shape == shape,
           "an input of a recurrent layer has another type or shape");
  }

  static void check_lengths(const Running &running, const Sizes &sizes) {
    const auto *lengths = running.input<int32_t>(kLengths);
    for (int64_t sample = 0; lengths != nullptr && sample < sizes.batch; ++sample)
      need(lengths[sample] >= 0 && lengths[sample] <= sizes.steps, "a length out of range");
  }

  /// The output with this number among Y, Y_h and Y_c; null if nobody wants it.
  float *output(const Running &running, size_t number) const {
    if (number >= wanted_.size() || wanted_[number] == 0)
      return nullptr;
    size_t at = 0;
    for (size_t i = 0; i < number; ++i)
      at += wanted_[i] != 0;
    return running.output(at);
  }

  /// All steps of one direction for samples [begin, end); false for values that can't be computed
  /// with.
  bool walk(const Running &running, const Sizes &sizes, int64_t d, int64_t begin, int64_t end,
            float *gates, std::byte *scratch) const {
    const Direction &direction = directions_[size_t(d)];
    const Kernels &kernels = running.kernels;
    const int64_t columns = sizes.columns();
    const size_t row_bytes = size_t(hidden_) * sizeof(float);
    float *product = gates + sizes.gate_floats();
    float *h = product + sizes.batch * columns;
    float *c = h + sizes.batch * hidden_;
    float *kept = c + sizes.batch * hidden_; // what a GRU's reset gate leaves
    float *carried = kept + sizes.batch * hidden_;
    const float *bias = running.input(kB);
    const float *state_bias = bias == nullptr ? nullptr : bias + (2 * d + 1) * columns;
    const float *peephole = running.input(kPeephole);
    const auto *lengths = running.input<int32_t>(kLengths);
    float *y = output(running, 0);
    for (int64_t n = begin; n < end; ++n) {
      fill_state(h + n * hidden_, running.input(kInitialH), sizes.state_at(d, n));
      fill_state(c + n * hidden_, running.input(kInitialC), sizes.state_at(d, n));
    }
    RecurrentCell cell = {};
    cell.hidden = hidden_;
    cell.peephole = peephole == nullptr ? nullptr : peephole + d * 3 * hidden_;
    cell.clip = clip_;
    std::copy_n(direction.activations, 3, cell.activations);
    cell.couple = couple_;
    cell.resets_product = resets_product_;
    const Factor::Operands of_state = {h, state_bias, product, columns, scratch};
    const auto each_sample = [&](int64_t step, RecurrentCell::Phase phase) {
      for (int64_t n = begin; n < end; ++n) {
        const int64_t length = lengths == nullptr ? sizes.steps : lengths[n];
        if (step >= length) {
          if (y != nullptr)
            std::memset(y + sizes.y_at(step, d, n), 0, row_bytes);
          continue;
        }
        const int64_t time = direction.backwards ? length - 1 - step : step;
        cell.gates = gates + sizes.row(time, n) * columns;
        cell.product = product + n * columns;
        cell.carried = (phase == RecurrentCell::kCloseGru && direction.last != nullptr ? carried
                                                                                        : kept) +
                       n * hidden_;
        cell.h = h + n * hidden_;
        cell.c = c + n * hidden_;
        cell.y = y == nullptr ? nullptr : y + sizes.y_at(time, d, n);
        kernels.recur(cell, phase);
      }
    };
    for (int64_t step = 0; step < sizes.steps; ++step) {
      if (!direction.state->multiply(kernels, of_state, begin, end))
        return false;
      if (kind_ != kGru) {
        each_sample(step, kind_ == kLstm ? RecurrentCell::kLstm : RecurrentCell::kPlain);
        continue;
      }
      each_sample(step, RecurrentCell::kOpenGru);
      if (direction.last != nullptr) {
        const float *own = state_bias == nullptr ? nullptr : state_bias + 2 * hidden_;
        direction.last->multiply(kernels, {kept, own, carried, hidden_, scratch}, begin, end);
      }
      each_sample(step, RecurrentCell::kCloseGru);
    }
    for (size_t number = 1; number < 3; ++number)
      if (float *last = output(running, number); last != nullptr)
        for (int64_t n = begin; n < end; ++n)
          std::memcpy(last + sizes.state_at(d, n), (number == 1 ? h : c) + n * hidden_, row_bytes);
    return true;
  }

  void fill_state(float *to, const float *from, int64_t at) const {
    if (from == nullptr)
      std::fill_n(to, hidden_, 0.0f);
    else
      std::copy_n(from + at, hidden_, to);
  }

  int64_t kind_;
  bool batch_first_, couple_, resets_product_, quantised_;
  float clip_;
  std::vector<int64_t> wanted_;
  int64_t gates_, width_, hidden_;
  std::vector<Direction> directions_;
};

const Registration kRecurrent("recurrent", [](const Making &making) -> std::unique_ptr<Operation> {
  return std::make_unique<Recurrent>(making);
});

} // namespace
} // namespace ep
