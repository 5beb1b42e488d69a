// RNN, LSTM and GRU in float32. Weights are constant and packed when the program is made.
//
// Inputs: X, W, R, B, sequence lengths, initial h, initial c, peepholes; all from B on may be left
// out. Attributes: "kind" (0 RNN, 1 LSTM, 2 GRU), "backwards" (per direction), "batch_first", "clip",
// "activations", "alphas" and "betas" (of all directions, in order), "couple", "resets_product",
// "wanted" (which of Y, Y_h and Y_c are outputs).
//
// The input's part of all steps is one product; then sequences go step by step, directions and parts
// of the batch on threads of their own. No sum depends on how they are shared out.
#include <cstring>
#include <limits>

#include "tiling.h"

namespace ep {
namespace {

enum Input : size_t { kX, kW, kR, kB, kLengths, kInitialH, kInitialC, kPeephole };
enum Kind : int64_t { kRnn, kLstm, kGru };

/// A packed second operand of a product, [k, n].
struct Factor {
  int64_t k, n;
  std::shared_ptr<const Weights> packed;

  /// From a matrix that lies transposed, [n, k].
  Factor(const Making &making, const float *data, int64_t k, int64_t n) : k(k), n(n) {
    const Kernels &kernels = making.kernels;
    const std::string layout = std::string("gemm ") + kernels.name + " " + std::to_string(k) + " " +
                               std::to_string(n) + " transposed";
    packed = shared_weights({reinterpret_cast<const std::byte *>(data),
                             size_t(k * n) * sizeof(float), layout},
                            size_t(kernels.packed_size(k, n)) * sizeof(float), [&](std::byte *to) {
                              kernels.pack_panels(data, 1, k, k, n, reinterpret_cast<float *>(to), 0,
                                                  panels(kernels));
                            });
  }

  int64_t panels(const Kernels &kernels) const { return (n + kernels.panel - 1) / kernels.panel; }

  /// [rows, k] times this into [rows, c_step], of which the first n columns are written.
  Gemm gemm(const float *a, const float *bias, float *c, int64_t c_step) const {
    Gemm gemm = {};
    gemm.k = k;
    gemm.n = n;
    gemm.a = a;
    gemm.a_step = k;
    gemm.packed = packed->floats();
    gemm.c = c;
    gemm.c_step = c_step;
    gemm.bias = bias;
    gemm.low = -std::numeric_limits<float>::infinity();
    gemm.high = std::numeric_limits<float>::infinity();
    return gemm;
  }
};

struct Direction {
  bool backwards;
  Factor input;
  Factor state;                       // without the last gate if that has a factor of its own
  std::unique_ptr<const Factor> last; // of a GRU that resets the state
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
        clip_(making.attributes.number("clip", std::numeric_limits<float>::infinity())),
        wanted_(making.attributes.integers("wanted")) {
    const Constant *w = making.constants[kW];
    const Constant *r = making.constants[kR];
    if (w == nullptr || r == nullptr || w->spec.shape.rank() != 3 || r->spec.shape.rank() != 3)
      throw Mistake("weights of a recurrent layer are constants of three axes");
    gates_ = kind_ == kLstm ? 4 : kind_ == kGru ? 3 : 1;
    width_ = w->spec.shape[2];
    hidden_ = r->spec.shape[2];
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
    planned.workspace = size_t(sizes.directions * sizes.floats()) * sizeof(float);
    const int64_t most = std::max<int64_t>(sizes.batch / planning.kernels.tile_rows, 1);
    const int64_t groups = std::clamp<int64_t>(planning.threads / sizes.directions, 1, most);
    const Tiling tiling(sizes.steps * sizes.batch, sizes.columns(), width_, planning.kernels,
                        planning.threads);
    planned.task = task([=, this](const Running &running) {
      check_lengths(running, sizes);
      running.crew.each(sizes.directions * tiling.count(), [&](int64_t chunk, int) {
        const int64_t d = chunk / tiling.count();
        const float *bias = running.input(kB);
        const Gemm gemm = directions_[size_t(d)].input.gemm(
            running.input(kX), bias == nullptr ? nullptr : bias + d * 2 * sizes.columns(),
            workspace(running, sizes, d), sizes.columns());
        tiling.run(running.kernels, gemm, chunk % tiling.count());
      });
      running.crew.each(sizes.directions * groups, [&](int64_t chunk, int) {
        const int64_t group = chunk % groups;
        walk(running, sizes, chunk / groups, sizes.batch * group / groups,
             sizes.batch * (group + 1) / groups);
      });
    });
    return planned;
  }

  size_t constant_bytes() const override {
    size_t total = 0;
    for (const Direction &direction : directions_)
      total += direction.input.packed->bytes + direction.state.packed->bytes +
               (direction.last == nullptr ? 0 : direction.last->packed->bytes);
    return total;
  }

private:
  Direction make_direction(const Making &making, const Constant &w, const Constant &r, int64_t d,
                           bool backwards) const {
    const int64_t columns = gates_ * hidden_;
    const float *state = r.floats() + d * columns * hidden_;
    const bool splits = kind_ == kGru && !resets_product_;
    Direction direction{backwards,
                        Factor(making, w.floats() + d * columns * width_, width_, columns),
                        Factor(making, state, hidden_, splits ? 2 * hidden_ : columns),
                        nullptr,
                        {}};
    if (splits)
      direction.last = std::make_unique<const Factor>(making, state + 2 * hidden_ * hidden_, hidden_,
                                                      hidden_);
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

  static float *workspace(const Running &running, const Sizes &sizes, int64_t d) {
    return reinterpret_cast<float *>(running.workspace) + d * sizes.floats();
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

  /// All steps of one direction for samples [begin, end).
  void walk(const Running &running, const Sizes &sizes, int64_t d, int64_t begin,
            int64_t end) const {
    const Direction &direction = directions_[size_t(d)];
    const Kernels &kernels = running.kernels;
    const int64_t columns = sizes.columns();
    const size_t row_bytes = size_t(hidden_) * sizeof(float);
    float *gates = workspace(running, sizes, d);
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
    const Gemm of_state = direction.state.gemm(h, state_bias, product, columns);
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
      kernels.gemm(of_state, begin, end, 0, direction.state.panels(kernels));
      if (kind_ != kGru) {
        each_sample(step, kind_ == kLstm ? RecurrentCell::kLstm : RecurrentCell::kPlain);
        continue;
      }
      each_sample(step, RecurrentCell::kOpenGru);
      if (direction.last != nullptr) {
        const float *own = state_bias == nullptr ? nullptr : state_bias + 2 * hidden_;
        kernels.gemm(direction.last->gemm(kept, own, carried, hidden_), begin, end, 0,
                     direction.last->panels(kernels));
      }
      each_sample(step, RecurrentCell::kCloseGru);
    }
    for (size_t number = 1; number < 3; ++number)
      if (float *last = output(running, number); last != nullptr)
        for (int64_t n = begin; n < end; ++n)
          std::memcpy(last + sizes.state_at(d, n), (number == 1 ? h : c) + n * hidden_, row_bytes);
  }

  void fill_state(float *to, const float *from, int64_t at) const {
    if (from == nullptr)
      std::fill_n(to, hidden_, 0.0f);
    else
      std::copy_n(from + at, hidden_, to);
  }

  int64_t kind_;
  bool batch_first_, couple_, resets_product_;
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
